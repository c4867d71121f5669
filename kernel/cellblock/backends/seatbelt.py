"""macOS's sandbox: the zygote starts under a profile that denies by default.

Contract: files outside the roots can't be read, changed or looked up, nothing is reached over a
network unless network_access is True, and no program but this interpreter is executed unless
subprocess_execution is. Zygote and guests are under one profile.
Gaps: guests can fork, because the zygote has to; nothing here limits memory, files or processor
time; sandbox-exec is deprecated and its language undocumented (ADR 0091). Never verified: what
is claimed rests on the profile, and no guest has been tried under it.
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

from cellblock.backends import planner
from cellblock.backends.base import (
    HOST,
    Backend,
    Declare,
    Support,
    by_policy,
    holds,
    nothing,
    partly,
)
from cellblock.backends.landlock import unprobed
from cellblock.errors import PolicyError
from cellblock.policy import paths
from cellblock.policy.enforcement import Enforcement, Status
from cellblock.policy.model import Policy
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cellblock.backends.base import Support, View


#: Part of macOS. Not looked up on PATH, which may hold another.
SANDBOX_EXEC: Final = "/usr/bin/sandbox-exec"

_HARD_LINK = "a hard link to a denied file, made elsewhere beneath a read root, is readable"
_FORKS = "a cell can fork copies of itself, which stay under the profile"
_EXECUTES = "a cell can execute this interpreter anew, under the profile and without the guards"


def _network(policy: Policy, _support: Support) -> Declare:
    if policy.network_access is True:
        return holds("network_access", "not restricted: TCP and UDP sockets")
    if policy.network_access:
        mechanism = "Seatbelt: no address is reached, those on the list neither"
        return _unavailable("network_access", mechanism)
    return holds("network_access", "Seatbelt: network*, local sockets with names too")


def _processes(policy: Policy, _support: Support) -> Declare:
    if policy.subprocess_execution:
        mechanism = "programs beneath the system's folders, under the same profile"
        return holds("subprocess_execution", mechanism)
    return partly("subprocess_execution", "Seatbelt: process-exec", _FORKS, _EXECUTES)


def _denied(policy: Policy, _support: Support) -> Declare:
    from cellblock.backends.planner import splits_roots  # noqa: PLC0415 - plan is heavier

    mechanism = "Seatbelt: denied after every grant"
    if splits_roots(policy):
        return partly("read_deny_paths", mechanism, _HARD_LINK)
    return holds("read_deny_paths", mechanism)


def _packages(policy: Policy, _support: Support) -> Declare:
    if policy.package_installation:
        return _unavailable("package_installation", "the host alone installs packages")
    return holds("package_installation", "no folder on the import path is writable")


def _unavailable(capability: str, mechanism: str) -> Declare:
    return lambda _policy, _support: Enforcement(capability, Status.unavailable, mechanism, (), "")


def _as_found(declare: Declare) -> Declare:
    """Have a declaration carry what the probe found as its evidence."""
    return lambda policy, support: replace(
        declare(policy, support), evidence=f"{support.why}; macOS {support.os_kernel}"
    )


def _decided(capability: str, decide: Callable[[Policy, Support], Declare]) -> Declare:
    return _as_found(by_policy(capability, decide))


class Seatbelt(Backend):
    """One profile around zygote and guests. The guest takes no lock of its own on macOS."""

    name = "seatbelt"
    locks = ()
    wraps = True
    declarations: ClassVar[Mapping[str, Declare]] = {
        **HOST,
        "filesystem_read_roots": _as_found(
            holds("filesystem_read_roots", "Seatbelt: file-read*, names, sizes and times too")
        ),
        "filesystem_write_roots": _as_found(
            holds("filesystem_write_roots", "Seatbelt: file-write*; no hard links are made")
        ),
        "read_deny_paths": _decided("read_deny_paths", _denied),
        "network_access": _decided("network_access", _network),
        "subprocess_execution": _decided("subprocess_execution", _processes),
        "package_installation": _decided("package_installation", _packages),
        "snapshots": _unavailable("snapshots", "the host keeps copies of guests on Linux only"),
        "undo_depth": _unavailable("undo_depth", "the host keeps copies of guests on Linux only"),
        "cpu_seconds": nothing("cpu_seconds"),
        "memory_max_bytes": nothing("memory_max_bytes"),
        "max_processes": nothing("max_processes"),
        "max_open_files": nothing("max_open_files"),
        "max_file_size": nothing("max_file_size"),
    }

    def glance(self) -> Support:
        """Look for macOS and its sandbox-exec; start nothing."""
        system = platform.system()
        if system != "Darwin":
            return unprobed(f"needs macOS, and this is {system}", usable=False)
        if not os.access(SANDBOX_EXEC, os.X_OK):
            return unprobed(f"no {SANDBOX_EXEC}", usable=False)
        return unprobed("left to sandbox-exec: it starts nothing if it can't", usable=True)

    def probe(self) -> Support:
        """Start this interpreter under a profile and have it look whether that holds."""
        found = self.glance()
        if not found.usable:
            return found

        return trial(self)

    @contextlib.contextmanager
    def command(self, argv: Sequence[str], view: View) -> Iterator[list[str]]:
        """Yield what ``wrap`` returns."""
        yield self.wrap(argv, view)

    def wrap(self, argv: Sequence[str], view: View) -> list[str]:
        """Return ``argv`` under a profile, which replaces sandbox-exec in the same process.

        Raises PolicyError for a view that can't be kept.
        """
        return [SANDBOX_EXEC, "-p", profile(view), *argv]


# SBPL, the language of macOS's sandbox profiles: strings and rules, from values.
#
# A profile is a program in a small Scheme, so a path in it is quoted or it is code. Grammar
# used::
#
#     rule   = "(" ( "allow" | "deny" ) 1*( SP operation ) *( SP filter ) ")"
#     filter = "(" ( "literal" | "subpath" ) SP string ")"
#     string = DQUOTE *( "\\" | "\" DQUOTE | any character but control characters ) DQUOTE
#
# Source: sandbox-exec(1), the profiles in /System/Library/Sandbox/Profiles; Apple documents no
# more.


def quoted(path: str) -> str:
    """Return an absolute path as a string of the language.

    Raises ValueError for what has no spelling that is sure to be read back as it is: control
    characters, whose escapes are not documented; what is not UTF-8; and paths that are not
    absolute, or not canonical, which would match nothing.
    """
    if not path.startswith("/"):
        raise ValueError("not an absolute path")
    if {".", ".."} & set(path.split("/")):
        raise ValueError("not a canonical path")
    # Cc: control characters, Cs: bytes that are not UTF-8, as Python carries them.
    if any(unicodedata.category(each) in ("Cc", "Cs") for each in path):
        raise ValueError("a control character, or not UTF-8")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def literals(paths: Iterable[str]) -> tuple[str, ...]:
    """Return filters that match just these. Raises ValueError as ``quoted`` does."""
    return tuple(f"(literal {quoted(path)})" for path in paths)


def trees(paths: Iterable[str]) -> tuple[str, ...]:
    """Return filters that match these and all beneath. Raises ValueError as ``quoted`` does.

    A literal each as well: whether ``subpath`` matches what is a file is not documented.
    """
    return tuple(f"(literal {name}) (subpath {name})" for name in (quoted(path) for path in paths))


def rule(action: str, operations: str, filters: Iterable[str]) -> str:
    """Return a rule, or nothing without filters: one that has none matches everything."""
    lines = tuple(filters)
    if not lines:
        return ""
    return "\n  ".join((f"({action} {operations}", *lines)) + ")"


# A policy as a profile for macOS's sandbox: the shipped template, filled in.
#
# Contract: what the template does not allow, and the policy does not, no rule allows. Denied
# paths come after every grant. A path that can't be said in the language is refused, never left
# out.

#: How an error names a policy of which only the view is known.
_POLICY: Final = "this policy"

TEMPLATE: Final = Path(__file__).with_name("seatbelt.sb")

#: Where package managers keep the libraries that their interpreters are linked against.
_LINKED: Final = (
    "/opt/homebrew/Cellar",
    "/opt/homebrew/lib",
    "/opt/homebrew/opt",
    "/opt/local/lib",
    "/usr/local/Cellar",
    "/usr/local/lib",
    "/usr/local/opt",
)

#: Of macOS (MAXSYMLINKS).
_MOST_LINKS: Final = 32

#: With network_access: every address, no local socket but the resolver's, its files, certificates.
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
    """Return the profile's text for what a zygote is to see.

    Raises PolicyError for what can't be said, and for what would be denied after its grant.
    """
    for root in view.writable:
        planner.refuse_denied(root, view.masked, policy_name=_POLICY)
    try:
        rules = _rules(view)
    except ValueError as error:
        paths = (*view.readable, *view.writable, *view.masked)
        raise _unspeakable(paths, str(error)) from error
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(rules)


def images() -> tuple[str, ...]:
    """Return this interpreter's executables, canonical.

    A framework build's ``python3`` only starts the application inside the framework.
    """
    framework = f"{sys.base_prefix}/Resources/Python.app/Contents/MacOS/Python"
    # "_base_executable" is what a virtual environment's interpreter goes on as.
    base = getattr(sys, "_base_executable", None) or sys.executable
    found = (sys.executable, base, framework)
    return tuple(dict.fromkeys(planner.real(path) for path in found if os.path.exists(path)))  # noqa: PTH110


def _rules(view: View) -> dict[str, str]:
    readable = planner.outermost((*view.readable, *planner.canonical(_runtime())))
    links = {os.path.normpath(name) for name in _links()}
    names = map(os.path.normpath, view.names)
    above = {*_above((*readable, *view.writable, *names, *links)), *links}
    # Of /dev the template leaves a few devices.
    denied = [path for path in view.masked if path != "/dev"]
    # The packages of a policy lie in a folder of the host's own, which is denied.
    kept = [root for root in readable if within(root, paths.base())]
    last = (
        rule("deny", "file*", trees(denied)),
        rule("allow", "file-read* file-map-executable", trees(kept)),
    )
    return {
        "exec": _exec(view),
        "read": rule("allow", "file-read* file-map-executable", trees(readable)),
        "write": rule("allow", "file-read* file-write*", trees(view.writable)),
        "above": rule("allow", "file-read-metadata", literals(sorted(above))),
        # A list of addresses opens nothing: a profile's filters know no host but this machine.
        "network": _NETWORK if view.network else "",
        "denied": "\n".join(filter(None, last)),
    }


def _exec(view: View) -> str:
    allowed = rule("allow", "process-exec", literals(images()))
    if not view.subprocess:
        return allowed
    tables = [path for path, _ in planner.PROGRAMS]
    programs = planner.canonical((*tables, *planner.interpreter_programs()))
    return f"{allowed}\n{rule('allow', 'process-exec*', trees(programs))}"


def _runtime() -> tuple[str, ...]:
    """Return what the interpreter is made of beyond ``places.interpreter``."""
    inside = (f"{sys.base_prefix}/{name}" for name in ("Python", "Resources"))
    return (*images(), *inside, *_LINKED)


def _links() -> Iterator[str]:
    """Yield names by which the interpreter is found, each link on the way to it among them."""
    yield from (sys.prefix, sys.base_prefix)
    for start in {sys.executable, getattr(sys, "_base_executable", None) or sys.executable}:
        path = start
        for _ in range(_MOST_LINKS):
            yield path
            if not os.path.islink(path):  # noqa: PTH114
                break
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))  # noqa: PTH115, PTH118, PTH120


def _above(paths: Iterable[str]) -> Iterator[str]:
    """Yield the folders on the way to ``paths``, which are stat'ed when one is looked up."""
    for path in paths:
        yield from map(str, Path(path).parents)


def _unspeakable(paths: Iterable[str], why: str) -> PolicyError:
    for path in paths:
        try:
            quoted(path)
        except ValueError as error:
            return PolicyError(
                f"a name that no macOS sandbox profile can carry: {error}",
                file=_POLICY,
                key="",
                value=ascii(path),
                remedy="Rename it, or take it out of the policy.",
            )
    return PolicyError(
        f"a name on the way to the interpreter that no macOS sandbox profile can carry: {why}",
        file=_POLICY,
        key="",
        value=ascii(sys.executable),
        remedy="Install it, and keep the project, in folders with ordinary names.",
    )


# A wrapped interpreter that looks whether what is around it holds: the probe of ``seatbelt``.

#: Seconds a trial may take: an interpreter's start on a machine that is busy.
PATIENCE: Final = 20.0
_LONGEST: Final = 64 * 1024
#: What has to be refused, each beside a control that has to succeed.
_SEEN: Final = ("files", "names", "writes", "links", "sockets", "programs")

#: Runs inside. Each line of the table is an attempt; its name starts with "no" if it is to fail.
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


def trial(backend: Backend) -> Support:
    """Try ``backend`` on this interpreter. Never raises; what can't be tried is unusable."""
    try:
        answer = _tried(backend)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return unprobed(f"the probe gave no answer: {error}", usable=False)
    if isinstance(answer, str):
        return unprobed(answer, usable=False)
    witnessed = tuple(name for name in _SEEN if answer.get(name) and not answer.get(f"no {name}"))
    unseen = [name for name in _SEEN if name not in witnessed]
    why = f"not witnessed: {', '.join(unseen)}" if unseen else "seen to hold in a probe"
    return replace(unprobed(why, usable=not unseen), witnessed=witnessed)


def _tried(backend: Backend) -> dict[str, bool] | str:
    """Return what came of each attempt, or what went wrong."""
    with (
        tempfile.TemporaryDirectory(prefix="cellblock-") as inside,
        tempfile.TemporaryDirectory(prefix="cellblock-") as outside,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        Path(inside, "in").write_text("in", encoding="utf-8")
        Path(outside, "secret").write_text("secret", encoding="utf-8")
        arguments = (os.path.realpath(inside), os.path.realpath(outside))
        done = _run(backend, *arguments, listener.getsockname()[1])
    if done.returncode:
        return f"the probe ended with {done.returncode}: {_last_line(done.stderr)}"
    answer = json.loads(done.stdout[:_LONGEST])
    return answer if isinstance(answer, dict) else "the probe gave no answer"


def _run(
    backend: Backend, inside: str, outside: str, port: int
) -> subprocess.CompletedProcess[bytes]:
    policy = Policy().replace(filesystem_write_roots=(inside,))
    folders: Any = {"scratch": Path(inside), "project": Path(inside)}
    view = planner.view(policy, planner.plan(policy, backend, **folders), **folders)
    program = [sys.executable, "-I", "-S", "-c", _PROGRAM, inside, outside, str(port)]
    with backend.command(program, view) as argv:
        return subprocess.run(  # noqa: S603 - our own program
            argv,
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else platform.system()
