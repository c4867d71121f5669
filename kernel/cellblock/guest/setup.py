"""What a zygote prepares once (``prepare``), and how its fork becomes a guest (``become_guest``).

Both are called by ``zygote``. A guest starts in these steps:

    fork ── descriptors in place, isolated ──> SessionSetup received ──> locks taken
      ──> Ready sent ──> audit hook armed ──> streams, ``inputs`` ──> ``Server.serve_forever``

A guest with a ``trial`` stops after the locks, tries them and ends. If a step up to the locks
fails, the guest sends ``NotReady`` and ends.
"""

from __future__ import annotations

import array
import builtins
import contextlib
import fcntl
import getpass
import importlib
import json
import os
import random
import site
import socket
import sys
import tempfile
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
from IPython.core.magic import no_var_expand
from IPython.core.magics.config import ConfigMagics
from IPython.display import display

from cellblock.analysis import Rules
from cellblock.guest import (
    audit_hook,
    failed_programs,
    guards,
    host_services,
    launch,
    loop,
    not_there,
    output,
    server,
    shell,
)
from cellblock.guest.audit_hook import effects
from cellblock.guest.channel import Channel
from cellblock.guest.children import patch_psutil
from cellblock.guest.confine import ConfineError, confine, process
from cellblock.guest.confine import prepare as prepare_locks
from cellblock.guest.confine.process import isolate_fork
from cellblock.guest.confine.syscalls import HANDING_OVER
from cellblock.guest.import_path import ImportPath
from cellblock.guest.installed import is_packages
from cellblock.guest.library_patches import (
    DEBUGGERS,
    PROMPTS,
    SAFE_PATH,
    SETTINGS,
    keep_pythons_to_installed_modules,
    patch_charts,
    patch_kernelspecs,
    patch_listeners,
    patch_standard_library,
    patch_start_method,
    patch_threadpoolctl,
    patch_when_imported,
)
from cellblock.guest.pip import patch_scripts
from cellblock.guest.probes import LockTrial
from cellblock.guest.runner import RulesInForce
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.guest.library_patches import Patch


#: Characters of a value in the repr of ``inputs``; names in the message of a KeyError.
_SHOWN: Final = 60
_NAMED: Final = 10
_GIVEN: Final = "whoever runs the cells gives inputs: --input FILE, or Sandbox(inputs={…})"


class Inputs(Mapping[str, Any]):
    """``inputs``: values that the caller of a run or sandbox gives to cells, read-only, by name.

    Each look-up returns a new copy, made of JSON's types. ``encoded`` are the values as JSON.
    """

    __slots__ = ("_encoded",)

    _encoded: Mapping[str, str]

    def __init__(self, encoded: Mapping[str, str]) -> None:
        object.__setattr__(self, "_encoded", MappingProxyType(dict(encoded)))

    def __getitem__(self, name: str) -> Any:
        if name in self._encoded:
            return json.loads(self._encoded[name])
        names = list(self._encoded)[:_NAMED]
        more_count = len(self._encoded) - _NAMED
        listing = f"but {', '.join(names)}" if names else "and no other"
        listing += f" and {more_count:,} more" if more_count > 0 else ""
        raise KeyError(f"there is no input {name!r}, {listing}; {_GIVEN}")

    def __contains__(self, name: object) -> bool:
        return name in self._encoded

    def __iter__(self) -> Iterator[str]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("inputs can be read only")

    def __repr__(self) -> str:
        items = ", ".join(f"{name!r}: {_short(text)}" for name, text in self._encoded.items())
        return f"inputs({{{items}}})"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


#: Names that IPython puts into the namespace, and that mode safe removes.
_IPYTHON_NAMES = ("__builtin__", "get_ipython", "exit", "quit", "open", "_dh")
#: Environment variables in which libraries look for the user's folders.
_HOME_VARIABLES = (
    "HOME", "IPYTHONDIR", "MPLCONFIGDIR", "TMPDIR",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
)  # fmt: skip
#: A guest's descriptor of its channel to the host.
CHANNEL_FD = 3
#: A guest's descriptor of the socket that takes the gate's listener to the zygote, until that is
#: sent.
GATE_FD = 4
#: Descriptor numbers of what the host sends with ``Fork``: channel, stdout, stderr.
_TARGETS = (CHANNEL_FD, 1, 2)


class Prepared:
    """A shell with its guards, built in the zygote and ready to be forked.

    ``become_guest`` is called in each fork. Until then nothing here belongs to a session.
    """

    _server: server.Server

    def __init__(self, request: messages.Prepare) -> None:
        self.request = request
        #: The zygote is the process that makes this object.
        self._zygote = os.getpid()
        self._rules = Rules.from_builtins(request.rules)
        self._current = RulesInForce(self._rules)
        patch_standard_library(processes=request.plan.subprocess)
        effects.watch()
        loop.allow_nested_run()
        if not self._rules.language:
            loop.make_loops_alike()
            site.setcopyright()  # site does this, but the zygote is started without site
        builtins.input = server.reader(lambda: self._server, password=False)
        getpass.getpass = server.reader(lambda: self._server, password=True)
        most, calls = request.tool_max_bytes, lambda: self._server.calls
        tools = host_services.namespace(request.tools, most, calls)
        extra: dict[str, Any] = {
            "display": display,
            "get_ipython": shell.get_ipython_for(self._rules),
            "input": builtins.input,
            "getpass": getpass.getpass,
            **tools,
        }
        names: dict[str, Any] = guards.install(self._current, extra)
        self._builtins = names
        self._shell: Any = shell.build(self._rules, names)
        if self._rules.language:
            # %cd keeps its folders in ``_dh``.
            kept_names = {"_dh"} if "cd" in self._rules.magics else set[str]()
            shell.strip_globals(self._shell, tuple({*_IPYTHON_NAMES} - kept_names))
        self._shell.tools = dict(tools)
        self._magics = shell.HostMagics(self._shell)
        # Bind the policy's ``pre_imported`` as a cell's own import would.
        for name in request.pre_imported:
            module = names["__import__"](name, {"__name__": "__main__"}, {}, (), 0)
            self._shell.user_ns[name] = module
            shell.hide(self._shell, name)
        # Cells find the tools among builtins. Completion and inspection look in the namespace.
        self._shell.user_ns.update(tools)
        shell.hide(self._shell, *tools)
        prepare_locks(request.plan)
        self._arm = self._prepare_audit_hook()

    def _prepare_audit_hook(self) -> Callable[[Callable[[str], None]], None]:
        """Return the function that arms the audit hook in a guest.

        It takes a function that reports an operation which the hook caught.
        """
        if self._rules.raw_modules:
            # No hook: raw packages reach the OS layer anyhow, whose refusals name the policy field.
            return lambda _report: None
        plan = self.request.plan
        network = plan.network or bool(plan.neighbours) or plan.serves
        return audit_hook.arming(self._rules, network=network, processes=plan.subprocess)

    def become_guest(
        self, fds: list[int], fork: messages.Fork, failure: ConfineError | None = None
    ) -> None:
        """Turn this fork into a guest: own session, own descriptors, locks. Then serve the host.

        ``fds`` are channel, stdout and stderr, and if there is a gate the socket that takes its
        listener. If ``fork`` has a trial, the guest tries its locks instead of serving, sends the
        results and returns. ``failure`` is why the zygote could not give the fork its mounts; the
        guest then only reports that. Raises SystemExit if the guest must end.
        """
        process.set_name("guest")
        trial = LockTrial(fork.trial, fds) if fork.trial is not None else None
        gated = len(fds) > len(_TARGETS)
        kept_fds = _place_descriptors(fds, (*_TARGETS, GATE_FD))
        channel = Channel(socket.socket(fileno=CHANNEL_FD))
        with _failure_reported(channel):
            if failure is not None:
                raise failure
            isolate_fork(self._zygote, kept_fds)
        session = channel.recv()
        if not isinstance(session, messages.SessionSetup):
            raise TypeError("the first frame must be SessionSetup")
        self._apply_session(session)
        begins_in = server.enter_nearest(self.request.cwd)
        if not self._rules.language:
            self._shell.user_ns["_dh"][:] = [begins_in]
        sys.dont_write_bytecode = True
        if trial is not None:
            trial.before_locks()
        self._lock(channel, begins_in, gated=gated)
        if trial is not None:
            channel.send(trial.run())
            return

        def report(operation: str) -> None:
            channel.send_and_exit(messages.Breach(operation=operation))

        out = output.Outlet(channel)
        output.write_lines()
        self._arm(report)
        # Starts afresh, since the attempts on the locks are not the effects of a cell.
        effects.begin_session(programs=self.request.plan.subprocess)
        self._serve(channel, out)

    def _apply_session(self, session_setup: messages.SessionSetup) -> None:
        """Replace what was prepared for all guests by the session's own values."""
        values = msgspec.structs.asdict(session_setup)
        random.seed(values.pop("seed"))
        # For these fields the zygote's plan counts, not the host's: the zygote has found out what
        # mounts and networks it could make.
        zygote_plan = self.request.plan
        values["plan"] = msgspec.structs.replace(
            session_setup.plan,
            attributes=session_setup.plan.may_set_attributes(zygote_plan, session_setup.scratch),
            loopback=zygote_plan.loopback,
            local_sockets=zygote_plan.local_sockets,
        )
        self.request = msgspec.structs.replace(self.request, **values)
        for name in _HOME_VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(session_setup.environment)
        os.environ["IPYTHONDIR"] = self._shell.ipython_dir = session_setup.ipython_dir
        # Set, so that tempfile need not look for a folder: IPython uses this one in the names of
        # cells, before the first cell runs.
        tempfile.tempdir = session_setup.environment["TMPDIR"]

    def _lock(self, channel: Channel, begins_in: str, *, gated: bool) -> None:
        """Take the locks, and send ``Ready`` with the report or ``NotReady``."""
        with _failure_reported(channel):
            try:
                report = confine(self.request.plan, hand_over=_hand_over if gated else None)
            finally:
                if gated:
                    os.close(GATE_FD)
        if begins_in != self.request.cwd:
            report = msgspec.structs.replace(report, begins_in=begins_in)
        channel.send(messages.Ready(report=report))

    def _serve(self, channel: Channel, out: output.Outlet) -> None:
        """Set up streams, imports and ``inputs``, then serve the host. Never returns."""
        sys.stdout = output.out_stream("stdout", out)
        sys.stderr = output.out_stream("stderr", out)
        effects.on_program = out.program_starts
        self._shell.display_pub.out = self._shell.displayhook.out = out
        if self._rules.admission:
            keep_to_installed_modules(self.request.cwd)
            # %config evaluates what it sets, which would include the text of a variable.
            no_var_expand(ConfigMagics.config)
        elif not self._rules.language:
            # The folder that cells run in, behind the standard library as under ipykernel. The
            # zygote's path does not have it.
            folders = enumerate(sys.path)
            sys.path.insert(next((index for index, path in folders if is_packages(path)), 0), "")
        # ``inputs`` is an ordinary name, which cells may assign something else to.
        namespace = self._shell.user_ns
        names = namespace["__builtins__"] if self._rules.language else vars(builtins)
        names["inputs"] = namespace["inputs"] = Inputs(self.request.inputs)
        shell.hide(self._shell, "inputs")
        self._server = self._magics.server = server.Server(
            self._shell,
            self._current,
            channel,
            out,
            self.request,
            zygote=self._zygote,
        )
        if not self._rules.language:
            not_there.watch(out.send)
            self._shell.on_error = failed_programs.watch(out.send)
        self._server.serve_forever()


def keep_to_installed_modules(cwd: str) -> None:
    """Keep imports from looking into the folder that cells run in. Used if cells need approval.

    A module there is a file that nobody has approved, and that may be put there after the approval
    of a cell. ``ImportPath`` keeps libraries from adding the folder again. ``SAFE_PATH`` is for
    Python processes that cells start: without it, ``python -m`` and ``-c`` would look there first
    (``python -m pip``, multiprocessing's helpers).
    """
    folder = os.path.realpath(cwd)
    # The zygote has the host's path, and ``python -m cellblock`` has put its working folder there.
    sys.path = ImportPath((path for path in sys.path if os.path.realpath(path) != folder), folder)
    os.environ.update(SAFE_PATH)


def prepare(request: messages.Prepare) -> Prepared:
    """Build everything that guests share. Runs in the zygote, before any fork.

    Imports with a new, empty folder as working folder and home. In a folder that guests have used,
    or in a checkout, an imported library would read settings and follow links that somebody else
    put there (promise P12).
    """
    launch.name_program()
    home = tempfile.mkdtemp(prefix=".prepared-", dir=request.scratch)
    os.chdir(home)
    os.environ.update(request.environment | dict.fromkeys(_HOME_VARIABLES, home))
    if request.charts:
        patch_charts(request.charts, vega=request.vega)
    patches: dict[str, Patch] = {
        "IPython.core.magics.script": patch_scripts,
        "jupyter_client.kernelspec": patch_kernelspecs,
        "psutil": patch_psutil,
        "threadpoolctl": patch_threadpoolctl,
    }
    if not request.plan.local_sockets:
        patches["multiprocessing.context"] = patch_start_method
        if request.plan.loopback:
            patches["multiprocessing.connection"] = patch_listeners
    if Rules.from_builtins(request.rules).admission:
        patches |= PROMPTS
        patches |= SETTINGS
        for name in PROMPTS.keys() & sys.modules.keys():
            PROMPTS[name](sys.modules[name])
        keep_pythons_to_installed_modules()
    else:
        patches |= DEBUGGERS
    patch_when_imported(patches)
    sys.path.extend(request.paths)
    for name in request.preload:
        importlib.import_module(name)
    prepared = Prepared(request)
    os.chdir("/")
    return prepared


@contextlib.contextmanager
def _failure_reported(channel: Channel) -> Iterator[None]:
    """Send ``NotReady`` for a ConfineError, and raise SystemExit."""
    try:
        yield
    except ConfineError as exc:
        channel.send(messages.NotReady(lock=exc.lock, detail=exc.why))
        raise SystemExit(1) from None


def _place_descriptors(fds: list[int], numbers: tuple[int, ...]) -> set[int]:
    """Move the descriptors ``fds`` to ``numbers``, and /dev/null to 0.

    Return the numbers in use. ``isolate_fork`` closes all others.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    targets = (0, *numbers)[: 1 + len(fds)]
    # First above all targets, so that no descriptor replaces another. As low as possible, because
    # of a limit on open files.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, GATE_FD + 1) for fd in (null, *fds)]
    for target, fd in zip(targets, high, strict=True):
        os.dup2(fd, target)
    os.set_inheritable(CHANNEL_FD, False)
    return set(targets)


def _hand_over(listener: int) -> None:
    """Send the gate's listener to the zygote, which answers the gate's calls from then on."""
    with socket.socket(fileno=os.dup(GATE_FD)) as sock:
        # Not by ``send_fds``, which ignores its flags (CPython 3.11).
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))
        sock.sendmsg([b"g"], [rights], HANDING_OVER)
