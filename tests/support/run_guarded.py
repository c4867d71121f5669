# ruff: noqa: E402, BLE001 - imports come after the path is set; attacks raise anything
"""Runs small programs as guests would, with the OS layer off, each in a fork of a hardened process.

Reads JSON from stdin: ``package`` (the folder to import cellblock from), ``preset``, ``layer``
(whether there is a language layer), ``check`` (whether the source is checked), ``guards`` (whether
they are installed), ``arm`` (whether the audit hook is armed), ``environ``, ``programs`` (lists of
cells). Writes a JSON list of reports: ``denied`` (rule ids), ``error`` (type and text, or "stopped"
and the operation), ``out`` (both streams). With ``prelude`` it answers batches: see ``batches.py``.
"""

import ast
import builtins
import contextlib
import ctypes  # noqa: F401 - with others below: so that attack programs need not load them
import glob  # noqa: F401
import importlib
import inspect
import io
import itertools
import json
import marshal  # noqa: F401
import mmap  # noqa: F401
import os
import pickle  # noqa: F401
import shutil  # noqa: F401
import sys
import tempfile  # noqa: F401
import time
import urllib.request  # noqa: F401
from pathlib import Path

WORK = json.loads(sys.stdin.readline())
sys.path.insert(0, str(Path(__file__).parent))
importlib.import_module("_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters")
from batches import serve
from canary import canary

sys.path[0] = WORK["package"]
os.environ.update(WORK["environ"])

import asyncio
from asyncio import events

import IPython.display

from cellblock.analysis import Rules, analyse, transform
from cellblock.analysis.allowlist import MODULES, SCIENCE
from cellblock.analysis.magic_table import ALLOWED_MAGICS
from cellblock.descriptors import is_readable
from cellblock.guest import audit_hook, guards, shell, tracebacks
from cellblock.guest import shell as shells
from cellblock.guest.rewriting import is_future
from cellblock.guest.runner import RulesInForce
from cellblock.guest.setup import _IPYTHON_NAMES as IPYTHON_NAMES

RAW = frozenset(SCIENCE if WORK["preset"] == "data" else ())
RULES = Rules(WORK["layer"], MODULES, RAW, frozenset(ALLOWED_MAGICS))
LIMIT = 180.0


class Out:
    """A guest's outlet that prints instead of sending messages to the host."""

    def show(self, _kind, data, **_):
        print(data.get("text/plain", data))

    def send(self, message):
        print("\n".join(message.traceback) if hasattr(message, "traceback") else message)


class Guest:
    """The guest's shell without a host. Results are printed."""

    def __init__(self):
        extra = {"display": IPython.display.display, "input": input, "canary": canary}
        extra["get_ipython"] = shell.get_ipython_for(RULES)
        # Without guards a copy of the real builtins, by which the audit hook knows user code.
        names = (
            guards.install(RulesInForce(RULES), extra)
            if WORK["guards"]
            else {**vars(builtins), **extra}
        )
        self.shell = shells.build(RULES, names)
        shells.CellCompiler.rewritten = WORK["guards"]
        if WORK["layer"]:
            shells.strip_globals(self.shell, IPYTHON_NAMES)
        self.space, self.names = self.shell.user_ns, self.shell.user_ns["__builtins__"]
        out = Out()
        self.shell.display_pub.out = out
        self.shell.displayhook.out = out
        sys.displayhook = self.shell.displayhook

    def fail(self, error):
        self.shell.showtraceback((type(error), error, error.__traceback__))

    def compiled(self, source):
        """Return the code object of a whole program."""
        return self.shell.compile(self.shell.compile.ast_parse(source), "<program>", "exec")

    def run(self, source):
        """Run a cell in parts; IPython would run each statement by itself.

        The difference matters for imports from ``__future__``, each of which begins a part here.
        """
        body = self.shell.compile.ast_parse(source).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        starts = [at for at, statement in enumerate(body) if is_future(statement)]
        for start, end in itertools.pairwise([0, *starts, len(body)]):
            self.execute(ast.Module(body[start:end], []), "exec")
        if last:
            self.execute(ast.Interactive([last]), "single")

    def execute(self, tree, mode):
        with self.shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
            code = self.shell.compile(tree, "<cell>", mode)
        self.space["__builtins__"] = self.names
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.get_event_loop().run_until_complete(eval(code, self.space))
        else:  # a loop is marked as running in plain cells too
            events._set_running_loop(asyncio.get_event_loop())
            try:
                exec(code, self.space)
            finally:
                events._set_running_loop(None)


class Stream:
    """Standard output as guests have it, without a file object behind it."""

    def __init__(self, fd):
        self.fd = fd

    def write(self, text):
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self.fd, data) :]
        return len(text)

    def flush(self):
        pass


def child(guest, cells, report, stop):
    if WORK["layer"]:
        sys.stdout = sys.__stdout__ = Stream(1)
        sys.stderr = sys.__stderr__ = Stream(2)
    asyncio.set_event_loop(asyncio.new_event_loop())
    if WORK["arm"]:
        audit_hook.arming(RULES)(stop)
    try:
        for cell in cells:
            source = transform(cell).source
            found = analyse(source, RULES) if WORK["check"] else ()
            if found:
                report["denied"] = sorted({finding.rule for finding in found})
                return
            guest.run(source)
    except BaseException as error:
        report["error"] = [type(error).__name__, tracebacks.describe(error)[:10_000]]
        guest.fail(error)


def fork(guest, cells):
    read, write = os.pipe()
    back, forth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.close(read)
        report = {"denied": [], "error": None}

        def tell():
            sys.stdout.flush()
            os.write(forth, json.dumps(report).encode())
            os._exit(0)

        def stop(operation):
            report["error"] = ["stopped", operation]
            tell()

        child(guest, cells, report, stop)
        tell()
    os.close(write)
    os.close(forth)
    out, deadline, timed_out = b"", time.monotonic() + LIMIT, True
    while time.monotonic() < deadline:
        if is_readable(read, 0.5):
            part = os.read(read, 65536)
            if not part:
                timed_out = False
                break
            out += part
    if timed_out:
        os.kill(pid, 9)
    os.waitpid(pid, 0)
    try:
        report = json.loads(os.read(back, 1 << 20) or b'{"denied": [], "error": ["died", ""]}')
    except ValueError:
        report = {"denied": [], "error": ["garbled", ""]}
    os.close(read)
    os.close(back)
    return {**report, "out": out.decode("utf-8", "replace"), "timed_out": timed_out}


def warm(guest):
    """Import the modules that the first traceback needs, once for all forks."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            guest.run("1/0")
        except ZeroDivisionError as error:
            guest.fail(error)


guest = Guest()
asyncio.set_event_loop(asyncio.new_event_loop())
warm(guest)
if "prelude" in WORK:
    serve(guest, WORK)
else:
    json.dump([fork(guest, cells) for cells in WORK["programs"]], sys.stdout)
