r"""Backend seatbelt: macOS's sandbox. The zygote starts under a profile that denies by default.

Contract: files outside the roots can't be read, changed or looked up. Nothing is reached over a
network unless network_access is True, and no program but this interpreter is executed unless
subprocess_execution is. Zygote and guests are under one profile. The profile allows only what the
template (``seatbelt.sb``) or the policy allows. Denied paths come after all grants. A path that the
profile's language can't express is refused, never left out.
Gaps: guests can fork, because the zygote must. Nothing here limits memory, files or processor time.
sandbox-exec is deprecated, and its language is undocumented (ADR 0018). Nothing is ever verified:
all claims rest on the profile, and no guest has been tried under it.

The language, SBPL, is a small Scheme. A path in it must be quoted, or it would be code. The grammar
used here::

    rule   = "(" ( "allow" | "deny" ) 1*( SP operation ) *( SP filter ) ")"
    filter = "(" ( "literal" | "subpath" ) SP string ")"
    string = DQUOTE *( "\\" | "\" DQUOTE | any character but control characters ) DQUOTE

Source: sandbox-exec(1), the profiles in /System/Library/Sandbox/Profiles; Apple documents no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import unicodedata
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, ClassVar, Final

from cellblock.backends.base import (
    HOST,
    UNENFORCED,
    UNLIMITED,
    UNRESTRICTED_NETWORK,
    UNSTAGED,
    Backend,
    Declaration,
    Declare,
    Support,
    holds,
    no_devices,
    package_installation,
    partly,
    unavailable,
    unprobed,
    witnessed,
)
from cellblock.backends.plan import (
    PROGRAMS,
    canonical,
    interpreter_programs,
    make_plan,
    make_view,
    outermost,
    real,
    refuse_denied,
    splits_roots,
)
from cellblock.errors import PolicyError
from cellblock.policy.folders import package_folder
from cellblock.policy.model import Policy
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cellblock.backends.base import View
    from cellblock.policy.model import Enforcement

#: A part of macOS. It is not looked up on PATH, which may have another.
SANDBOX_EXEC: Final = "/usr/bin/sandbox-exec"
TEMPLATE: Final = Path(__file__).with_name("seatbelt.sb")


def _network(policy: Policy) -> Declaration:
    if policy.network_access is True:
        return UNRESTRICTED_NETWORK
    if policy.network_access:
        return unavailable("Seatbelt: no address is reached, those on the list neither")
    return holds("Seatbelt: network*, local sockets with names too")


def _processes(policy: Policy) -> Declaration:
    if policy.subprocess_execution:
        return holds("programs beneath the system's folders, under the same profile")
    return partly(
        "Seatbelt: process-exec",
        "a cell can fork copies of itself, which stay under the profile",
        "a cell can execute this interpreter anew, under the profile and without the guards",
    )


def _denied(policy: Policy) -> Declaration:
    mechanism = "Seatbelt: denied after every grant"
    if splits_roots(policy):
        hole = "a hard link to a denied file, made elsewhere beneath a read root, is readable"
        return partly(mechanism, hole)
    return holds(mechanism)


_NO_COPIES: Final = unavailable("the host keeps copies of guests on Linux only")
_BY_PROFILE: Final[Mapping[str, Declare]] = {
    "filesystem_read_roots": holds("Seatbelt: file-read*, names, sizes and times too"),
    "filesystem_write_roots": holds("Seatbelt: file-write*; no hard links are made"),
    "filesystem_staged_roots": UNSTAGED,
    "read_deny_paths": _denied,
    "network_access": _network,
    "devices": no_devices,
    "subprocess_execution": _processes,
    "package_installation": package_installation(),
}


class Seatbelt(Backend):
    """One profile around zygote and guests. On macOS a guest takes no locks of its own."""

    name = "seatbelt"
    locks = ()
    wraps = True
    declarations: ClassVar[Mapping[str, Declare]] = {
        **HOST,
        **UNLIMITED,
        **_BY_PROFILE,
        "snapshots": _NO_COPIES,
        "undo_depth": _NO_COPIES,
        "max_branches": _NO_COPIES,
        "cpu_seconds": UNENFORCED,
    }

    def declare(self, policy: Policy, support: Support) -> dict[str, Enforcement]:
        """Return what each capability is worth. The profile's part rests on its probe."""
        declared = super().declare(policy, support)
        evidence = f"{support.why}; macOS {support.os_kernel}"
        for capability in _BY_PROFILE:
            declared[capability] = replace(declared[capability], evidence=evidence)
        return declared

    def glance(self) -> Support:
        """Look for macOS and its sandbox-exec. Start nothing."""
        system = platform.system()
        if system != "Darwin":
            return unprobed(f"needs macOS, and this is {system}", usable=False)
        if not os.access(SANDBOX_EXEC, os.X_OK):
            return unprobed(f"no {SANDBOX_EXEC}", usable=False)
        return unprobed("left to sandbox-exec: it starts nothing if it can't", usable=True)

    def probe(self) -> Support:
        """Start this interpreter under a profile, and have it look whether that holds."""
        support = self.glance()
        if not support.usable:
            return support
        try:
            answer = _ask_wrapped(self)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return unprobed(f"the probe gave no answer: {error}", usable=False)
        if isinstance(answer, str):
            return unprobed(answer, usable=False)
        held = (name for name in _ATTEMPTS if answer.get(name) and not answer.get(f"no {name}"))
        return witnessed(held, _ATTEMPTS)

    @contextlib.contextmanager
    def command(self, argv: Sequence[str], view: View) -> Iterator[list[str]]:
        """Yield the zygote's command: ``argv`` under sandbox-exec, as ``wrap`` makes it.

        Nothing has to stay open.
        """
        yield self.wrap(argv, view)

    def wrap(self, argv: Sequence[str], view: View) -> list[str]:
        """Return the command that starts ``argv`` under a profile.

        ``argv`` replaces sandbox-exec in the same process. Raises PolicyError as
        ``profile`` does.
        """
        return [SANDBOX_EXEC, "-p", profile(view), *argv]


# --- making a profile from a view -------------------------------------------------------------

#: What errors call the policy, of which only the view is known here.
_POLICY: Final = "this policy"

#: Where package managers keep the libraries that their interpreters are linked against.
_LIBRARIES: Final = (
    "/opt/homebrew/Cellar",
    "/opt/homebrew/lib",
    "/opt/homebrew/opt",
    "/opt/local/lib",
    "/usr/local/Cellar",
    "/usr/local/lib",
    "/usr/local/opt",
)

#: Links that macOS follows (MAXSYMLINKS).
_MAX_LINKS: Final = 32

#: With network_access: all addresses, the resolver's local socket and files, and certificates.
_NETWORK: Final = """\
(allow network-outbound (remote ip) (literal "/private/var/run/mDNSResponder"))
(allow network-bind network-inbound (local ip))
(allow sysctl-read (sysctl-name-prefix "net.routetable."))
(allow file-read*
  (literal "/private/etc/hosts")
  (literal "/private/etc/protocols")
  (literal "/private/etc/resolv.conf")
  (literal "/private/etc/services")
  (literal "/private/var/run/resolv.conf")
  (subpath "/private/etc/ssl"))"""


def profile(view: View) -> str:
    """Return the text of the profile for a view.

    Raises PolicyError for a path that the language can't express, and for a write root that would
    be denied after its grant.
    """
    for root in view.writable:
        refuse_denied(root, view.masked, Policy(name=_POLICY), "filesystem_read_roots")
    try:
        rules = _rules(view)
    except ValueError as error:
        raise _inexpressible((*view.readable, *view.writable, *view.masked), error) from error
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(rules)


def _rules(view: View) -> dict[str, str]:
    """Return the rules for each word of the template. Raises ValueError as ``quoted`` does."""
    # Parts of the interpreter beside those of ``plan.interpreter``.
    inside = (f"{sys.base_prefix}/{name}" for name in ("Python", "Resources"))
    readable = outermost((*view.readable, *canonical((*executables(), *inside, *_LIBRARIES))))
    links = {os.path.normpath(name) for name in _interpreter_links()}
    names = {*readable, *view.writable, *map(os.path.normpath, view.names), *links}
    # When a name is looked up, the folders on the way are stat'ed.
    above = {*links, *(str(folder) for name in names for folder in Path(name).parents)}
    programs = ""
    if view.subprocess:
        programs_found = canonical((*(path for path, _ in PROGRAMS), *interpreter_programs()))
        programs = rule("allow", "process-exec*", trees(programs_found))
    # Not /dev as a whole: the template grants a few devices there.
    denied = [path for path in view.masked if path != "/dev"]
    # The policy's own packages lie in a folder of the host that is denied, so they are granted
    # again after the denials.
    packages = [root for root in readable if within(root, package_folder())]
    read_operations = "file-read* file-map-executable"
    return {
        "exec": _lines(rule("allow", "process-exec", literals(executables())), programs),
        "read": rule("allow", read_operations, trees(readable)),
        "write": rule("allow", "file-read* file-write*", trees(view.writable)),
        "above": rule("allow", "file-read-metadata", literals(sorted(above))),
        # A list of addresses opens nothing, because a profile's filters know only this machine.
        "network": _NETWORK if view.network else "",
        "denied": _lines(
            rule("deny", "file*", trees(denied)), rule("allow", read_operations, trees(packages))
        ),
    }


def _lines(*rules: str) -> str:
    return "\n".join(filter(None, rules))


def executables() -> tuple[str, ...]:
    """Return the canonical paths of this interpreter's executables.

    The ``python3`` of a framework build only starts the application inside the framework.
    """
    framework = f"{sys.base_prefix}/Resources/Python.app/Contents/MacOS/Python"
    candidates = (*_started_as(), framework)
    return tuple(dict.fromkeys(real(path) for path in candidates if os.path.exists(path)))


def _started_as() -> tuple[str, str]:
    """Return the interpreter, and the one that it goes on as in a virtual environment."""
    return sys.executable, getattr(sys, "_base_executable", None) or sys.executable


def _interpreter_links() -> Iterator[str]:
    """Yield the names by which the interpreter is found, including each link on the way to it."""
    yield from (sys.prefix, sys.base_prefix)
    for start in dict.fromkeys(_started_as()):
        path = start
        for _ in range(_MAX_LINKS):
            yield path
            if not os.path.islink(path):
                break
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


def _inexpressible(paths: Iterable[str], error: ValueError) -> PolicyError:
    """Return the error for a path that no profile can express: the policy's, or one of ours."""
    problem = "a name on the way to the interpreter that no macOS sandbox profile can carry"
    path = sys.executable
    remedy = "Install it, and keep the project, in folders with ordinary names."
    for candidate in paths:
        try:
            quoted(candidate)
        except ValueError as reason:
            problem = "a name that no macOS sandbox profile can carry"
            error = reason
            path = candidate
            remedy = "Rename it, or take it out of the policy."
            break
    return PolicyError(f"{problem}: {error}", file=_POLICY, value=ascii(path), remedy=remedy)


# --- the profile's language -------------------------------------------------------------------


def quoted(path: str) -> str:
    """Return an absolute path as a string of the profile language.

    Raises ValueError for a path that might not be read back as it is: with control characters,
    whose escapes are not documented, or not UTF-8. Also for a path that is not absolute or not
    canonical, which would match nothing.
    """
    if not path.startswith("/"):
        raise ValueError("not an absolute path")
    if {".", ".."} & set(path.split("/")):
        raise ValueError("not a canonical path")
    # Cc are control characters, Cs are bytes that are not UTF-8, as Python represents them.
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in path):
        raise ValueError("a control character, or not UTF-8")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def literals(paths: Iterable[str]) -> tuple[str, ...]:
    """Return filters that match exactly these paths. Raises ValueError as ``quoted`` does."""
    return tuple(f"(literal {quoted(path)})" for path in paths)


def trees(paths: Iterable[str]) -> tuple[str, ...]:
    """Return filters that match these paths and all beneath. Raises ValueError like ``quoted``.

    Each path also gets a literal, because it is not documented whether ``subpath`` matches a file.
    """
    return tuple(f"(literal {name}) (subpath {name})" for name in (quoted(path) for path in paths))


def rule(action: str, operations: str, filters: Iterable[str]) -> str:
    """Return a rule; "" if there are no filters, because a rule without any matches everything."""
    lines = tuple(filters)
    if not lines:
        return ""
    return "\n  ".join((f"({action} {operations}", *lines)) + ")"


# --- the probe --------------------------------------------------------------------------------

#: Seconds that a probe may take: an interpreter's start on a busy machine.
PATIENCE: Final = 20.0
_MAX_ANSWER_BYTES: Final = 64 * 1024
#: The attempts that must be refused; the control of each must succeed.
_ATTEMPTS: Final = ("files", "names", "writes", "links", "sockets", "programs")

#: The program that runs under the profile. Each line of its table is an attempt. The name of an
#: attempt begins with "no" if it must fail.
_PROGRAM: Final = """
import json, os, socket, sys
inside, outside, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
def connect():
    with socket.socket() as sock:
        sock.settimeout(5)
        sock.connect(("127.0.0.1", port))
def pair():
    one, other = socket.socketpair()
    one.sendall(b"x")
    other.recv(1)
def child(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError("refused")
def started():
    os.execv("/usr/bin/true", ["true"])
attempts = {
    "files": lambda: open(inside + "/in").read(),
    "no files": lambda: open(outside + "/secret").read(),
    "names": lambda: os.stat(inside + "/in"),
    "no names": lambda: os.stat(outside + "/secret"),
    "writes": lambda: open(inside + "/new", "w").close(),
    "no writes": lambda: open(outside + "/new", "w").close(),
    "links": lambda: os.rename(inside + "/new", inside + "/newer"),
    "no links": lambda: os.link(outside + "/secret", inside + "/secret"),
    "sockets": pair,
    "no sockets": connect,
    "programs": lambda: child(lambda: None),
    "no programs": lambda: child(started),
}
said = {}
for name, attempt in attempts.items():
    try:
        attempt()
        said[name] = True
    except OSError:
        said[name] = False
print(json.dumps(said))
"""


def _ask_wrapped(backend: Seatbelt) -> dict[str, bool] | str:
    """Return whether each attempt succeeded under the profile, or what went wrong.

    Raises OSError, ValueError, SubprocessError.
    """
    with (
        tempfile.TemporaryDirectory(prefix="cellblock-") as folder_inside,
        tempfile.TemporaryDirectory(prefix="cellblock-") as folder_outside,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        inside = os.path.realpath(folder_inside)
        outside = os.path.realpath(folder_outside)
        Path(inside, "in").write_text("in", encoding="utf-8")
        Path(outside, "secret").write_text("secret", encoding="utf-8")
        policy = Policy().replace(filesystem_write_roots=(inside,))
        folders: Any = {"scratch": Path(inside), "project": Path(inside)}
        view = make_view(policy, make_plan(policy, backend, **folders), **folders)
        port = str(listener.getsockname()[1])
        program = [sys.executable, "-I", "-S", "-c", _PROGRAM, inside, outside, port]
        completed = subprocess.run(
            backend.wrap(program, view),
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    if completed.returncode:
        lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
        last_line = lines[-1][:200] if lines else platform.system()
        return f"the probe ended with {completed.returncode}: {last_line}"
    answer = json.loads(completed.stdout[:_MAX_ANSWER_BYTES])
    return answer if isinstance(answer, dict) else "the probe gave no answer"
