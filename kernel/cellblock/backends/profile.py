"""A policy as a profile for macOS's sandbox: the shipped template, filled in.

Contract: what the template does not allow, and the policy does not, no rule allows. Denied paths
come after every grant. A path that can't be said in the language is refused, never left out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from cellblock.backends import places, roots, sbpl
from cellblock.errors import PolicyError
from cellblock.policy import store
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cellblock.backends.base import View

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
        roots.refuse_denied(root, view.masked, policy_name=_POLICY)
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
    return tuple(dict.fromkeys(roots.real(path) for path in found if os.path.exists(path)))  # noqa: PTH110


def _rules(view: View) -> dict[str, str]:
    readable = roots.outermost((*view.readable, *roots.canonical(_runtime())))
    links = {os.path.normpath(name) for name in _links()}
    names = map(os.path.normpath, view.names)
    above = {*_above((*readable, *view.writable, *names, *links)), *links}
    # Of /dev the template leaves a few devices.
    denied = [path for path in view.masked if path != "/dev"]
    # The packages of a policy lie in a folder of the host's own, which is denied.
    kept = [root for root in readable if within(root, store.base())]
    last = (
        sbpl.rule("deny", "file*", sbpl.trees(denied)),
        sbpl.rule("allow", "file-read* file-map-executable", sbpl.trees(kept)),
    )
    return {
        "exec": _exec(view),
        "read": sbpl.rule("allow", "file-read* file-map-executable", sbpl.trees(readable)),
        "write": sbpl.rule("allow", "file-read* file-write*", sbpl.trees(view.writable)),
        "above": sbpl.rule("allow", "file-read-metadata", sbpl.literals(sorted(above))),
        # A list of addresses opens nothing: a profile's filters know no host but this machine.
        "network": _NETWORK if view.network else "",
        "denied": "\n".join(filter(None, last)),
    }


def _exec(view: View) -> str:
    allowed = sbpl.rule("allow", "process-exec", sbpl.literals(images()))
    if not view.subprocess:
        return allowed
    tables = [path for path, _ in places.PROGRAMS]
    programs = roots.canonical((*tables, *places.interpreter_programs()))
    return f"{allowed}\n{sbpl.rule('allow', 'process-exec*', sbpl.trees(programs))}"


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
            sbpl.quoted(path)
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
