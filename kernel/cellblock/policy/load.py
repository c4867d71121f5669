"""Loads a policy, from a preset's name or a file's path.

A file is TOML. Its keys are the fields of ``model.Policy``, and two more::

    extends = "data"           # start from a preset; a key given here replaces the preset's
    [add]                      # or adds to the preset's list
    allowed_modules = ["mylib"]

A file goes through these steps::

    read --> merge with the preset --> parse: types --> check names --> expand paths
             _merged, normal           schema.parse     schema.check    paths.expand_paths

Mistakes raise one ``PolicyError`` with file, key, value and remedy; its ``others`` are the further
mistakes in the file. Shipped presets are not checked here, which saves a kernel the import of
pydantic: the tests check them.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from cellblock.analysis.allowlist import GROUPS, expand_groups
from cellblock.errors import PolicyError, together
from cellblock.policy import paths
from cellblock.policy.model import FIELDS, LISTS, OPTIONAL_FIELDS, SECTIONS, Policy, plain
from cellblock.policy.paths import Places, expand_group
from cellblock.policy.vocabulary import (
    FORMER_NAMES,
    MAX_NAME,
    PRESETS,
    TIERS,
    closest,
    frozen,
    is_size,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_FILE_BYTES: Final = 2**20
#: The way in which a policy of mode unsafe is allowed.
ASK: Final = "Start the kernel with --allow-unsafe"

_FOLDER: Final = Path(__file__).parent / "presets"
#: The names of policies that are not files.
KNOWN: Final = (*PRESETS, *TIERS)


class Accepted(Protocol):
    """The digests of policies' values that pydantic has accepted before, without converting any.

    A policy can be made of such values without importing pydantic.
    """

    def __contains__(self, digest: str, /) -> bool:
        """Return whether values with this digest were accepted."""

    def add(self, digest: str, /) -> None:
        """Remember the digest, if that is possible. Never raises."""


def load(
    spec: str,
    *,
    project: Path,
    scratch: Path | None = None,
    allow_unsafe: bool,
    has_project: bool = True,
    accepted: Accepted | None = None,
) -> Policy:
    """Return the policy that ``spec`` names: a preset, a former name, a tier, or a TOML file.

    ``project`` and ``scratch`` are the folders that ``{project}`` and ``{scratch}`` stand for;
    without a scratch folder ``{scratch}`` stays as written. If cells have no project
    (``has_project``), entries with ``{project}`` grant nothing. The types of values in ``accepted``
    are not checked again; names are checked each time. Raises PolicyError, also for mode ``unsafe``
    without ``allow_unsafe``.
    """
    name = FORMER_NAMES.get(spec, spec)
    file = name if name in KNOWN else spec
    places = Places(file, project, project, scratch, has_project=has_project)
    policy = _preset(places) if name in KNOWN else _file(places, accepted)
    return _allowed(policy, spec, allow_unsafe=allow_unsafe)


def check_policy(
    policy: Policy,
    *,
    project: Path,
    scratch: Path | None = None,
    allow_unsafe: bool,
    has_project: bool = True,
) -> Policy:
    """Return a policy that a program made, checked and expanded as ``load`` does with a file's.

    Its relative paths begin at ``project``. Raises PolicyError.
    """
    file = policy.name
    checked = from_fields(policy.as_dict(), file=file, known_modules=_our_modules())
    places = Places(file, project, project, scratch, has_project=has_project)
    checked = paths.expand_paths(checked, places)
    return _allowed(checked, file, allow_unsafe=allow_unsafe)


def from_fields(
    values: dict[str, Any],
    *,
    file: str,
    known_modules: Collection[str] | None = None,
    here: bool = True,
    accepted: Accepted | None = None,
) -> Policy:
    """Return the policy of these values, which are as in a file or as of ``Policy.as_dict``.

    With ``known_modules`` the names in it are checked, too. These modules, and those of a group
    that it names, need not be installed. ``here``: cells will run on this machine, so other modules
    must be. Raises PolicyError.
    """
    from cellblock.policy import schema  # noqa: PLC0415 - kernels of presets start without

    plain_values = normal(values)
    digest = "" if accepted is None else _digest(plain_values)
    if accepted is not None and digest in accepted:
        policy = from_values(plain_values)
    else:
        policy = schema.parse(plain_values, file=file)
        # pydantic may have changed values, a whole number to a fraction for example. Then it is
        # needed the next time, too.
        if accepted is not None and repr(from_values(plain_values)) == repr(policy):
            accepted.add(digest)
    if known_modules is not None:
        _check_names(policy, values, file=file, known_modules=known_modules, here=here)
    return policy


def _check_names(
    policy: Policy,
    values: Mapping[str, Any],
    *,
    file: str,
    known_modules: Collection[str],
    here: bool = True,
) -> None:
    """Raise PolicyError for the names in a policy that mean nothing. ``values`` are its file's."""
    from cellblock.policy import schema  # noqa: PLC0415 - kernels of presets start without

    named = values.get("allowed_modules", ())
    groups = [group for name, group in GROUPS.items() if name in named]
    modules = frozenset(known_modules).union(*groups)
    schema.check(policy, file=file, known_modules=modules, here=here)


def _digest(values: dict[str, Any]) -> str:
    """Return a digest of these values with their types, and of the code that checks them."""
    checks = [(file.name, file.stat().st_mtime_ns) for file in sorted(_FOLDER.parent.glob("*.py"))]
    return hashlib.sha256(repr((checks, values)).encode(errors="backslashreplace")).hexdigest()


def _allowed(policy: Policy, spec: str, *, allow_unsafe: bool) -> Policy:
    if not allow_unsafe and (error := unsafe_error(policy, spec)):
        raise error
    return policy


def unsafe_error(
    policy: Policy, spec: str, *, ask: str = ASK, asks: bool = True
) -> PolicyError | None:
    """Return the error of ``load`` for a policy of mode unsafe; None for any other.

    ``ask`` says how to allow it. ``asks``: the user may be asked, if the policy has approvals.
    """
    if policy.mode != "unsafe":
        return None
    approve = ", approve it where you can be asked" if asks and policy.approvals != "never" else ""
    message = "mode unsafe has to be asked for"
    remedy = f"{ask}{approve}, or choose a policy of mode confined or safe."
    return PolicyError(message, file=spec, key="mode", value="'unsafe'", remedy=remedy)


def base_folder(spec: str, project: Path) -> Path:
    """Return the folder at which relative paths of this policy begin."""
    if FORMER_NAMES.get(spec, spec) in KNOWN:
        return project
    return Path(os.path.expanduser(spec)).resolve().parent


def load_for_check(spec: str) -> Policy:
    """Return a policy for `cellblock check`, which judges source and runs nothing.

    Packages that it allows need not be installed, and its folders need not exist. Paths stay as
    written; see ``paths.expand_paths_leniently``. Raises PolicyError, also for mode ``unsafe``,
    which judges no source.
    """
    name = FORMER_NAMES.get(spec, spec)
    if name in KNOWN:
        policy = from_values(preset_values(name))
    else:
        _, base, own_values = _parts(spec)
        policy = from_fields(
            _merged(base, own_values, spec), file=spec, known_modules=(), here=False
        )
    if policy.mode == "unsafe":
        message = "no source is checked under this policy"
        remedy = "Choose a policy of mode safe or confined."
        raise PolicyError(message, file=spec, key="mode", value="'unsafe'", remedy=remedy)
    return policy


def _parts(spec: str) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Return a file's path, the values of the preset that it extends, and its own values."""
    path = Path(os.path.expanduser(spec))
    own_values = {"name": path.stem[:MAX_NAME], **_read(path, spec)}
    return path, _extended(own_values.pop("extends", "safe"), spec), own_values


def preset_values(name: str) -> dict[str, Any]:
    """Return the values of a preset, or of a tier, with its backend and name."""
    preset, backend = TIERS.get(name, (name, None))
    return normal(_shipped(preset) | {"name": name} | ({"backend": backend} if backend else {}))


@cache
def _shipped(name: str) -> dict[str, Any]:
    """Return the values of a preset's file, with the lists that it adds to filled in."""
    values = tomllib.loads((_FOLDER / f"{name}.toml").read_text("utf-8"))
    safe = Policy()
    return _added({key: list(getattr(safe, key)) for key in LISTS}, values, name)


def preset_policy(name: str, changes: Mapping[str, Any] | None = None) -> Policy:
    """Return a preset with changes, which are as in a file. Its paths are not expanded.

    Raises PolicyError, as for a file.
    """
    base = _extended(name, name)
    own_values = {key: plain(value) for key, value in (changes or {}).items()}
    file = str(own_values.get("name", name))
    if not own_values:
        return from_values(base)
    return from_fields(_merged(base, own_values, file), file=file, known_modules=_our_modules())


def _our_modules() -> set[str]:
    """Return the modules of presets and groups, which need not be installed."""
    presets = map(preset_values, PRESETS)
    modules = {name for preset in presets for name in preset.get("allowed_modules", ())}
    return modules | set(expand_groups(GROUPS))


def _preset(places: Places) -> Policy:
    # Not checked here: the tests check that the shipped values equal what ``schema`` makes of them.
    return paths.expand_paths(from_values(preset_values(places.file)), places)


def from_values(values: dict[str, Any]) -> Policy:
    """Make a policy of values without checking them."""
    sections = {key: make(**frozen(values[key])) for key, make in SECTIONS.items() if key in values}
    return Policy().replace(**frozen(values) | sections)


def _file(places: Places, accepted: Accepted | None) -> Policy:
    """Load a file. Raises PolicyError with all mistakes in names and paths."""
    spec = places.file
    path, base, own_values = _parts(spec)
    inherited = () if "allowed_modules" in own_values else tuple(base.get("allowed_modules", ()))
    inherited += tuple(expand_groups(GROUPS))
    values = _merged(base, own_values, spec)
    wrong = []
    policy = from_fields(values, file=spec, accepted=accepted)
    try:
        _check_names(policy, values, file=spec, known_modules=inherited)
    except PolicyError as error:
        wrong.append(error)
    try:
        policy = paths.expand_paths(policy, replace(places, folder=path.resolve().parent))
        paths.refuse_writable(path, policy, spec)
    except PolicyError as error:
        wrong.append(error)
    if wrong:
        raise together(wrong)
    return policy


def _read(path: Path, spec: str) -> dict[str, Any]:
    """Return the values in a TOML file. Raises PolicyError."""
    try:
        if path.exists() and not path.is_file():
            # Opening a pipe would wait for a writer.
            message, remedy = "not a regular file", "Give a file."
        else:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
            if len(content) <= MAX_FILE_BYTES:
                return tomllib.loads(content.decode())
            message, remedy = "larger than 1 MiB", "A policy is a page of text."
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as failure:
        message, remedy = f"not TOML: {failure}", "Mend it there."
        if "twice" in message or "overwrite" in message or "immutable" in message:
            remedy = "A key or a [table] is there twice: put all of its lines in one place."
    except FileNotFoundError:
        if "/" in spec or spec.endswith(".toml"):
            message, remedy = "no such file", "Check the path."
        else:
            near = closest(spec, (*KNOWN, *FORMER_NAMES), what="presets")
            message, remedy = "no such policy", f"{near} Or give a file."
    except (OSError, ValueError) as failure:
        detail = getattr(failure, "strerror", None) or str(failure)
        message, remedy = f"can't be read: {detail}", "Give a readable file."
    raise PolicyError(message, file=spec, remedy=remedy)


def _extended(name: object, spec: str) -> dict[str, Any]:
    preset = FORMER_NAMES.get(name, name) if isinstance(name, str) else None
    if preset in KNOWN:
        return preset_values(str(preset))
    key, remedy = "extends" if name != spec else "", closest(str(name), KNOWN, what="presets")
    raise PolicyError("no such preset", file=spec, key=key, value=repr(name), remedy=remedy)


def _merged(base: dict[str, Any], own_values: dict[str, Any], spec: str) -> dict[str, Any]:
    """Return the preset's values with the file's own, tables merged key by key.

    Raises PolicyError.
    """
    values = _added(base, normal(own_values), spec)
    for key in SECTIONS:
        if isinstance(values[key], dict):
            values[key] = base[key] | values[key]
    return values


def _added(base: dict[str, Any], own_values: dict[str, Any], spec: str) -> dict[str, Any]:
    """Return ``base`` with a file's own values, which replace it, or are appended from [add].

    Raises PolicyError.
    """
    values = base | {key: value for key, value in own_values.items() if key != "add"}
    additions = own_values.get("add", {})
    wrong = {} if isinstance(additions, dict) else {"add": (additions, "Write a table: [add].")}
    for key, entries in additions.items() if isinstance(additions, dict) else ():
        if key not in LISTS:
            wrong[f"add.{key}"] = (entries, _not_added(key))
        elif not isinstance(entries, list):
            wrong[f"add.{key}"] = (entries, "Give a list.")
        elif isinstance(before := values.get(key, []), list):
            values[key] = [*before, *entries]
    if wrong:
        raise together(
            [_cannot_be_added(key, *mistake, file=spec) for key, mistake in wrong.items()]
        )
    return values


def _cannot_be_added(key: str, value: object, remedy: str, *, file: str) -> PolicyError:
    # An operator may have written a key there. It isn't shown, since messages are kept.
    text = "•••" if key == "add.credentials" else repr(value)
    return PolicyError("can't be added", file=file, key=key, value=text, remedy=remedy)


def _not_added(key: str) -> str:
    """Return the remedy for a key in [add] that isn't a list."""
    if key in FIELDS:
        return f"Put {key} above [add], and above any other [table]."
    return closest(key, LISTS, what="lists")


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


#: The keys of a table ``[tools]`` in a file, and the fields that they set.
_IN_TOOLS: Final = {"functions": "tools", "mcp": "mcp"}


def _with_sizes(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with sizes such as ``"8 GiB"`` in bytes, in tables, too."""
    converted = dict[str, Any]()
    for key, value in values.items():
        if isinstance(value, dict):
            converted[key] = _with_sizes(value)
        elif isinstance(value, str) and is_size(key) and (size := size_of(value)) is not None:
            converted[key] = size
        else:
            converted[key] = value
    return converted


def normal(values: dict[str, Any]) -> dict[str, Any]:
    """Return values in their normal form: former names, "none", sizes and groups are replaced."""
    normal = {
        key: None if key in OPTIONAL_FIELDS and v == "none" else v
        for key, v in _with_sizes(values).items()
    }
    tools: Any = normal.get("tools")
    if isinstance(tools, dict) and tools.keys() <= {"functions", "mcp"}:
        del normal["tools"]
        normal |= {_IN_TOOLS[key]: value for key, value in tools.items()}
    if isinstance(mode := normal.get("mode"), str):
        normal["mode"] = FORMER_NAMES.get(mode, mode)
    modules: Any = normal.get("allowed_modules")
    if _is_texts(modules):
        normal["allowed_modules"] = expand_groups(modules)
    denied: Any = normal.get("read_deny_paths")
    if _is_texts(denied):
        normal["read_deny_paths"] = expand_group(denied)
    return normal
