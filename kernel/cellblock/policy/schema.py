"""The pydantic side of a policy: operator's input in, ``Policy`` or one ``PolicyError`` out.

Imported only for operators' files; shipped presets are checked by the tests instead.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pkgutil
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from cellblock.errors import PolicyError
from cellblock.policy import network
from cellblock.policy.enforcement import CAPABILITIES
from cellblock.policy.load import closest
from cellblock.policy.model import FIELDS, LIMITS, SECTIONS, Policy, fields
from cellblock.policy.vocabulary import (
    AVAILABLE_BACKENDS,
    FIXED_ENVIRONMENT,
    FROM_ELSEWHERE,
    MAGICS,
    WIDGET_TARGETS,
    tool_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pydantic_core import ErrorDetails


#: pydantic's words in TOML's.
_WORDS = (
    ("a valid array", "a list"),
    ("a valid integer", "a whole number"),
    ("a valid string", "a text"),
    ("a valid boolean", "true or false"),
    ("an object", "a table"),
    ("a valid ", "a "),
)
_EXPECTED = {"network_access": "true, false or a list of host:port texts"}


def parse(values: Mapping[str, object], *, file: str) -> Policy:
    """Check ``values`` (field name to TOML value) and build the policy.

    Raises PolicyError for the first thing wrong. Paths are taken as they stand.
    """
    try:
        # JSON, because strict JSON input is where pydantic takes a list for a tuple.
        return _adapter().validate_json(json.dumps(values, default=str))
    except ValidationError as failure:
        raise _explained(failure.errors(include_url=False)[0], values, file) from None


@cache
def _adapter() -> TypeAdapter[Policy]:
    return TypeAdapter(Policy)


def _named(loc: tuple[int | str, ...]) -> tuple[str, tuple[str, ...] | None]:
    """Return the key at a place, and for one that is not known those that are."""
    top = str(loc[0])
    if top not in FIELDS:
        return top, FIELDS
    if top not in SECTIONS or len(loc) == 1:
        return top, None
    second, own = str(loc[1]), fields(top)
    if second not in own:
        return f"{top}.{second}", tuple(own)
    table = own[second]
    if table is None or len(loc) == 2:  # noqa: PLR2004 - the table itself
        return f"{top}.{second}", None
    names = tuple(field.name for field in dataclasses.fields(table))
    return f"{top}.{second}.{loc[2]}", None if loc[2] in names else names


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a policy, field docs and defaults included."""
    schema = _adapter().json_schema()
    # A default that is made anew for each policy is not in what pydantic says.
    schema["properties"]["tool_timeouts"]["default"] = {}
    schema["properties"]["ops"]["default"] = {}  # in a file there is no None
    return schema


def _explained(detail: ErrorDetails, values: Mapping[str, object], file: str) -> PolicyError:
    if not detail["loc"]:  # it never came to a field: a surrogate, from a name in bytes
        what, remedy = "not text", "Give the file and the folders it names names in UTF-8."
        return PolicyError(what, file=ascii(file), key="name", value="", remedy=remedy)
    key, known = _named(detail["loc"])
    if known is not None:
        remedy = closest(key.rpartition(".")[2], known, what="keys")
        return PolicyError("no such key", file=file, key=key, value="", remedy=remedy)
    expected = _EXPECTED.get(key) or detail["msg"].removeprefix("Input should be ")
    for theirs, ours in _WORDS:
        expected = expected.replace(theirs, ours)
    limit = ', or "none" for no limit' if key in LIMITS else ""
    value = detail["input"] if key not in _EXPECTED else values[key]
    return PolicyError(
        "wrong value",
        file=file,
        key=key,
        value=repr(value),
        remedy=f"It should be {expected}{limit}.",
    )


# What has to hold of ``[llm]``: an address, models, and a key that is told to nobody else.

_LONGEST: Final = 200
_VARIABLE: Final = re.compile(r"[^\W\d]\w*|")
_KEYRING: Final = re.compile(r"[^:\s][^:]*:[^:]+")


class Wrong(NamedTuple):
    """One thing that is wrong with a key of the section."""

    key: str
    message: str
    value: object
    remedy: str


def wrongs(policy: Policy, *, here: bool = True) -> Iterator[Wrong]:
    """Yield what is wrong, if cells are to have ``llm``; ``here`` on this machine."""
    if policy.llm.granted:
        yield from _address(policy)
        yield from _models(policy)
        yield from _key(policy)
        if here and importlib.util.find_spec("openai") is None:
            remedy = "Install it: pip install 'cellblock[llm]'."
            yield Wrong("base_url", "openai is not installed", policy.llm.base_url, remedy)
        if "llm" in map(_function, policy.tools):
            yield Wrong("base_url", "a tool is named llm", policy.llm.base_url, "Rename the tool.")


def _function(entry: str) -> str:
    return entry.rpartition(":")[2].rpartition(".")[2]


def _address(policy: Policy) -> Iterator[Wrong]:
    llm = policy.llm
    url = network.split(llm.base_url)
    if url is None:
        remedy = "Write it as in https://api.openai.com/v1."
        yield Wrong("base_url", "not an endpoint's address", llm.base_url, remedy)
    elif network.says_more(url):
        remedy = "Give the key by key_env or keyring, and nothing behind the path."
        yield Wrong("base_url", "it may be shown, so it holds no secret", "•••", remedy)
    elif (
        url.scheme == "http"
        and (llm.key_env or llm.keyring)
        and not network.is_here(url.hostname or "")
    ):
        remedy = "Write https, or leave out the key."
        yield Wrong(
            "base_url", "the key would cross the network in the clear", url.geturl(), remedy
        )


def _models(policy: Policy) -> Iterator[Wrong]:
    if not policy.llm.models:
        yield Wrong("models", "none is named", [], "Name one at least, the default first.")
    for name in policy.llm.models:
        if not name.isprintable() or not 0 < len(name) <= _LONGEST:
            yield Wrong("models", "not the name of a model", name, "Name it as the endpoint does.")


def _key(policy: Policy) -> Iterator[Wrong]:
    llm = policy.llm
    if llm.key_env in policy.env_var_access and llm.key_env:
        remedy = "Take it out of env_var_access."
        yield Wrong("key_env", "cells would be given the key", llm.key_env, remedy)
    if not _VARIABLE.fullmatch(llm.key_env):
        # It may be the key itself.
        remedy = "Give its name as in `env`, without $; the key itself stands nowhere in a policy."
        yield Wrong("key_env", "not the name of a variable", "•••", remedy)
    if llm.keyring and llm.key_env:
        yield Wrong("keyring", "the key is in key_env already", llm.keyring, "Give one of the two.")
    if llm.keyring and not _KEYRING.fullmatch(llm.keyring):
        yield Wrong("keyring", "not a place in a keyring", llm.keyring, "Write service:user.")


# What a type can't say about a policy: names that must mean something here.
#
# One function per field; each raises the PolicyError for the first thing wrong, or returns.

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
    for key, message, value, remedy in wrongs(policy, here=here):
        raise PolicyError(message, file=file, key=f"llm.{key}", value=repr(value), remedy=remedy)
    if policy.ops is not None or policy.packages:
        from cellblock.policy import operations  # noqa: PLC0415 - most policies grant nothing

        operations.check_grants(policy, file=file, here=here)


def _raising(field: str, one: Callable[[Policy], None], policy: Policy, file: str) -> None:
    try:
        one(policy)
    except _Wrong as wrong:
        raise PolicyError(
            wrong.message, file=file, key=field, value=repr(wrong.value), remedy=wrong.remedy
        ) from None


class _Wrong(Exception):  # never leaves this module
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
    from cellblock.policy import network  # noqa: PLC0415 - most policies have no list

    for entry in policy.network_access:
        try:
            network.parse_address(entry)
        except network.Malformed as wrong:
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
