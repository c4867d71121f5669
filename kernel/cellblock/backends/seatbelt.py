r"""macOS's sandbox: the zygote starts under a profile that denies by default.

Contract: files outside the roots can't be read, changed or looked up, nothing is reached over a
network unless network_access is True, and no program but this interpreter is executed unless
subprocess_execution is. Zygote and guests are under one profile. What neither the template
(``seatbelt.sb``) nor the policy allows, no rule allows. Denied paths come after every grant. A path
that can't be said in the profile's language is refused, never left out.
Gaps: guests can fork, because the zygote has to; nothing here limits memory, files or processor
time; sandbox-exec is deprecated and its language undocumented (ADR 0091). Never verified: what
is claimed rests on the profile, and no guest has been tried under it.

The language, SBPL, is a small Scheme, so a path in it is quoted or it is code. Grammar used::

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

#: Part of macOS. Not looked up on PATH, which may hold another.
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
    """One profile around zygote and guests. The guest takes no lock of its own on macOS."""

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
        """Return what each capability is worth; what the profile does rests on its probe."""
        declared = super().declare(policy, support)
        evidence = f"{support.why}; macOS {support.os_kernel}"
        for capability in _BY_PROFILE:
            declared[capability] = replace(declared[capability], evidence=evidence)
        return declared

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
        try:
            answer = _ask_wrapped(self)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return unprobed(f"the probe gave no answer: {error}", usable=False)
        if isinstance(answer, str):
            return unprobed(answer, usable=False)
        seen = (name for name in _ATTEMPTS if answer.get(name) and not answer.get(f"no {name}"))
        return witnessed(seen, _ATTEMPTS)

    @contextlib.contextmanager
    def command(self, argv: Sequence[str], view: View) -> Iterator[list[str]]:
        """Yield what ``wrap`` returns."""
        yield self.wrap(argv, view)

    def wrap(self, argv: Sequence[str], view: View) -> list[str]:
        """Return ``argv`` under a profile, which replaces sandbox-exec in the same process.

        Raises PolicyError for a view that can't be kept.
        """
        return [SANDBOX_EXEC, "-p", profile(view), *argv]


# --- from a view to a profile -----------------------------------------------------------------

#: How an error names a policy of which only the view is known.
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

#: Of macOS (MAXSYMLINKS).
_MAX_LINKS: Final = 32

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
        refuse_denied(root, view.masked, Policy(name=_POLICY), "filesystem_read_roots")
    try:
        rules = _rules(view)
    except ValueError as error:
        raise _unspeakable((*view.readable, *view.writable, *view.masked), error) from error
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(rules)


def _rules(view: View) -> dict[str, str]:
    """Return the rules for each place in the template. Raises ValueError as ``quoted`` does."""
    # What the interpreter is made of beyond ``plan.interpreter``.
    inside = (f"{sys.base_prefix}/{name}" for name in ("Python", "Resources"))
    readable = outermost((*view.readable, *canonical((*executables(), *inside, *_LIBRARIES))))
    links = {os.path.normpath(name) for name in _interpreter_links()}
    names = {*readable, *view.writable, *map(os.path.normpath, view.names), *links}
    # The folders on the way are stat'ed when a name is looked up.
    above = {*links, *(str(folder) for name in names for folder in Path(name).parents)}
    programs = ""
    if view.subprocess:
        found = canonical((*(path for path, _ in PROGRAMS), *interpreter_programs()))
        programs = rule("allow", "process-exec*", trees(found))
    # Of /dev the template leaves a few devices.
    denied = [path for path in view.masked if path != "/dev"]
    # The packages of a policy lie in a folder of the host's own, which is denied.
    kept = [root for root in readable if within(root, package_folder())]
    read = "file-read* file-map-executable"
    return {
        "exec": _lines(rule("allow", "process-exec", literals(executables())), programs),
        "read": rule("allow", read, trees(readable)),
        "write": rule("allow", "file-read* file-write*", trees(view.writable)),
        "above": rule("allow", "file-read-metadata", literals(sorted(above))),
        # A list of addresses opens nothing: a profile's filters know no host but this machine.
        "network": _NETWORK if view.network else "",
        "denied": _lines(rule("deny", "file*", trees(denied)), rule("allow", read, trees(kept))),
    }


def _lines(*rules: str) -> str:
    return "\n".join(filter(None, rules))


def executables() -> tuple[str, ...]:
    """Return this interpreter's executables, canonical.

    A framework build's ``python3`` only starts the application inside the framework.
    """
    framework = f"{sys.base_prefix}/Resources/Python.app/Contents/MacOS/Python"
    found = (*_started_as(), framework)
    return tuple(dict.fromkeys(real(path) for path in found if os.path.exists(path)))


def _started_as() -> tuple[str, str]:
    """Return the interpreter, and what one in a virtual environment goes on as."""
    return sys.executable, getattr(sys, "_base_executable", None) or sys.executable


def _interpreter_links() -> Iterator[str]:
    """Yield names by which the interpreter is found, each link on the way to it among them."""
    yield from (sys.prefix, sys.base_prefix)
    for start in dict.fromkeys(_started_as()):
        path = start
        for _ in range(_MAX_LINKS):
            yield path
            if not os.path.islink(path):
                break
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


def _unspeakable(paths: Iterable[str], error: ValueError) -> PolicyError:
    """Return the error for a view with a path that no profile can carry, the policy's or ours."""
    what = "a name on the way to the interpreter that no macOS sandbox profile can carry"
    path = sys.executable
    remedy = "Install it, and keep the project, in folders with ordinary names."
    for each in paths:
        try:
            quoted(each)
        except ValueError as found:
            what, error, path = "a name that no macOS sandbox profile can carry", found, each
            remedy = "Rename it, or take it out of the policy."
            break
    return PolicyError(f"{what}: {error}", file=_POLICY, value=ascii(path), remedy=remedy)


# --- the profile's language -------------------------------------------------------------------


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


# --- the probe --------------------------------------------------------------------------------

#: Seconds that a probe may take: an interpreter's start on a machine that is busy.
PATIENCE: Final = 20.0
_MAX_ANSWER_BYTES: Final = 64 * 1024
#: What has to be refused, each beside a control that has to succeed.
_ATTEMPTS: Final = ("files", "names", "writes", "links", "sockets", "programs")

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


def _ask_wrapped(backend: Seatbelt) -> dict[str, bool] | str:
    """Return whether each attempt succeeded behind the wrapper, or what went wrong.

    Raises OSError, ValueError, SubprocessError.
    """
    with (
        tempfile.TemporaryDirectory(prefix="cellblock-") as made_inside,
        tempfile.TemporaryDirectory(prefix="cellblock-") as made_outside,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        inside, outside = os.path.realpath(made_inside), os.path.realpath(made_outside)
        Path(inside, "in").write_text("in", encoding="utf-8")
        Path(outside, "secret").write_text("secret", encoding="utf-8")
        policy = Policy().replace(filesystem_write_roots=(inside,))
        folders: Any = {"scratch": Path(inside), "project": Path(inside)}
        view = make_view(policy, make_plan(policy, backend, **folders), **folders)
        port = str(listener.getsockname()[1])
        program = [sys.executable, "-I", "-S", "-c", _PROGRAM, inside, outside, port]
        done = subprocess.run(
            backend.wrap(program, view),
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = lines[-1][:200] if lines else platform.system()
        return f"the probe ended with {done.returncode}: {said}"
    answer = json.loads(done.stdout[:_MAX_ANSWER_BYTES])
    return answer if isinstance(answer, dict) else "the probe gave no answer"
