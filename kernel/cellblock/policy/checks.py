"""What a type can't say about a policy: names that must mean something here.

One function per field; each raises the PolicyError for the first thing wrong, or returns.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import sys
from typing import TYPE_CHECKING, Final

from cellblock.errors import PolicyError
from cellblock.policy import llm
from cellblock.policy.enforcement import CAPABILITIES
from cellblock.policy.suggest import closest
from cellblock.policy.vocabulary import (
    AVAILABLE_BACKENDS,
    FIXED_ENVIRONMENT,
    FROM_ELSEWHERE,
    MAGICS,
    WIDGET_TARGETS,
    tool_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cellblock.policy.model import Policy

#: What an engine's command line takes for a name, and for no option.
_RUNTIME: Final = r"([\w/][\w./-]{0,200})?"
_IMAGE: Final = r"([a-z0-9][\w./:@-]{0,300})?"
#: Characters of a pattern.
_PATTERN: Final = 1_000
_TOOL: Final = re.compile(r"[^\W\d][\w.-]*(?::[^\W\d][\w.]*)?")


def check(
    policy: Policy, *, file: str, missing_is_fine: Collection[str] = (), here: bool = True
) -> None:
    """Raise PolicyError unless every name in the policy means something on this machine.

    ``missing_is_fine`` are modules that need not be installed: a preset's own. ``here``: cells are
    to run on this machine, so what the host needs for them has to be installed.
    """
    own = (name for name in policy.allowed_modules if name not in missing_is_fine)
    _raising("allowed_modules", _allowed_modules, policy.replace(allowed_modules=tuple(own)), file)
    for field, one in _CHECKS:
        _raising(field, one, policy, file)
    for key, message, value, remedy in llm.wrongs(policy, here=here):
        raise PolicyError(message, file=file, key=f"llm.{key}", value=repr(value), remedy=remedy)
    if policy.ops is not None or policy.packages:
        from cellblock.policy import granting  # noqa: PLC0415 - most policies grant nothing

        granting.check_grants(policy, file=file, here=here)


def _raising(field: str, one: Callable[[Policy], None], policy: Policy, file: str) -> None:
    try:
        one(policy)
    except _Wrong as wrong:
        raise PolicyError(
            wrong.message, file=file, key=field, value=repr(wrong.value), remedy=wrong.remedy
        ) from None


class _Wrong(Exception):  # noqa: N818  # never leaves this module
    def __init__(self, message: str, value: object, remedy: str) -> None:
        self.message, self.value, self.remedy = message, value, remedy
        super().__init__(message)


def _name(policy: Policy) -> None:
    if not policy.name.isprintable() or not 0 < len(policy.name) <= 64:  # noqa: PLR2004
        raise _Wrong("not a name", policy.name, "Give 1 to 64 printable characters.")


def _backend(policy: Policy) -> None:
    if policy.backend not in AVAILABLE_BACKENDS:
        known = ", ".join(AVAILABLE_BACKENDS)
        raise _Wrong("this backend does not exist yet", policy.backend, f"Choose one of {known}.")


def _container_runtime(policy: Policy) -> None:
    if not re.fullmatch(_RUNTIME, policy.container_runtime):
        remedy = "Give a name that the engine knows, as in `docker info`."
        raise _Wrong("not the name of a runtime", policy.container_runtime, remedy)


def _container_image(policy: Policy) -> None:
    if not re.fullmatch(_IMAGE, policy.container_image):
        remedy = "Give a name as in `docker images`: name:tag."
        raise _Wrong("not the name of an image", policy.container_image, remedy)


def _require(policy: Policy) -> None:
    for name in policy.require:
        if name not in CAPABILITIES:
            raise _Wrong("no such capability", name, closest(name, CAPABILITIES, what="names"))


def _approval(policy: Policy) -> None:
    scope = policy.approval.scope
    if not scope.isprintable() or not 0 < len(scope) <= 200:  # noqa: PLR2004
        raise _Wrong("no scope", scope, "Give {project}, or 1 to 200 printable characters.")


def _magics(policy: Policy) -> None:
    for name in policy.magics:
        if policy.admission != "any" and name in FROM_ELSEWHERE:
            remedy = 'Remove it, or let admission be "any".'
            raise _Wrong("brings in code that nobody approved", name, remedy)
        if name not in MAGICS:
            remedy = "Write it without %." if "%" in name else closest(name, MAGICS, what="magics")
            raise _Wrong("no such magic", name, remedy)


def _allowed_modules(policy: Policy) -> None:
    for name in policy.allowed_modules:
        if "." in name:
            top = name.partition(".")[0]
            raise _Wrong("not a top-level package", name, f"Give {top}: packages come whole.")
        if not _may_come_later(name, policy):
            _importable(name)


def _may_come_later(name: str, policy: Policy) -> bool:
    """Say whether it can be a package that is installed when the kernel runs."""
    return name.isidentifier() and policy.operations is not None and bool(policy.operations.install)


def _preload(policy: Policy) -> None:
    for name in policy.preload:
        _importable(name)


def _pre_imported(policy: Policy) -> None:
    for name in policy.pre_imported:
        if "." in name:
            raise _Wrong("not a top-level module", name, "A dotted name binds no single name.")
        _importable(name)
        if policy.mode == "safe" and not policy.rules().allows_module(name):
            raise _Wrong("not an allowed module", name, "Add it to allowed_modules.")


def _importable(name: str) -> None:
    """Check a dotted name's first part without importing it."""
    top, *rest = name.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        raise _Wrong("not a module name", name, "Give a name as in an import statement.")
    if top in sys.stdlib_module_names or _found(top):
        return
    here = {module.name for module in pkgutil.iter_modules()} | sys.stdlib_module_names
    near = closest(top, here, what="modules")
    near = f"{near} " if near.startswith("Did") else ""
    raise _Wrong("no such module here", name, f"{near}Install it, or remove the entry.")


def _found(top: str) -> bool:
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _env_var_access(policy: Policy) -> None:
    for name in policy.env_var_access:
        if name in FIXED_ENVIRONMENT:
            raise _Wrong("always has a sandbox value", name, "Remove the entry.")
        if not name or "=" in name or not name.isprintable():
            raise _Wrong("not a variable name", name, "Give a name as in `env`, without $.")


def _comm_targets(policy: Policy) -> None:
    for name in policy.comm_targets:
        if name in WIDGET_TARGETS:
            raise _Wrong("widgets' own target", name, "Name modules in widget_modules instead.")


def _tools(policy: Policy) -> None:
    for entry in policy.tools:
        if not _TOOL.fullmatch(entry):
            remedy = "Write module:function, or the name of an entry point."
            raise _Wrong("not the name of a function", entry, remedy)


def _tool_timeouts(policy: Policy) -> None:
    named = {tool_name(entry) for entry in policy.tools}
    for name in policy.tool_timeouts:
        if name not in named:
            raise _Wrong("no such tool", name, closest(name, named, what="tools"))


def _artifact_export_paths(policy: Policy) -> None:
    for pattern in policy.artifact_export_paths:
        parts = pattern.split("/")
        if not pattern.isprintable() or ".." in parts or not parts[-1] or len(pattern) > _PATTERN:
            remedy = "Write one as in *.csv, plots/**/*.png or {scratch}/*.json."
            raise _Wrong("not a pattern of files", pattern, remedy)


def _network_access(policy: Policy) -> None:
    if isinstance(policy.network_access, bool):
        return
    from cellblock.policy import addresses  # noqa: PLC0415 - most policies have no list

    for entry in policy.network_access:
        try:
            addresses.parse_address(entry)
        except addresses.Malformed as wrong:
            raise _Wrong(wrong.message, entry, wrong.remedy) from None


_CHECKS: Final[tuple[tuple[str, Callable[[Policy], None]], ...]] = (
    ("name", _name),
    ("backend", _backend),
    ("container_runtime", _container_runtime),
    ("container_image", _container_image),
    ("require", _require),
    ("approval", _approval),
    ("magics", _magics),
    ("preload", _preload),
    ("pre_imported", _pre_imported),
    ("network_access", _network_access),
    ("env_var_access", _env_var_access),
    ("comm_targets", _comm_targets),
    ("tools", _tools),
    ("tool_timeouts", _tool_timeouts),
    ("artifact_export_paths", _artifact_export_paths),
)
