"""Load a policy: from a preset's name or a file's path.

A file is TOML. Its keys are the fields of ``model.Policy``, and two more::

    extends = "data"           # start from a preset; a key given here replaces the preset's
    [add]                      # or adds to the preset's list
    allowed_modules = ["mylib"]

Whatever is wrong raises one ``PolicyError``, which names file, key, value and remedy, and so do its
``others`` for what else is wrong with the file.
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
#: How whoever starts a kernel allows what has to be asked for.
ASK: Final = "Start the kernel with --allow-unsafe"

_FOLDER: Final = Path(__file__).parent / "presets"
#: What a policy is called that is in no file of the operator's.
KNOWN: Final = (*PRESETS, *TIERS)


class Accepted(Protocol):
    """Digests of files' values of which pydantic has made what they are as they stand."""

    def __contains__(self, digest: str, /) -> bool:
        """Return whether it has before."""

    def add(self, digest: str, /) -> None:
        """Remember it, where that can be. Never raises."""


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

    ``project`` and ``scratch`` are what ``{project}`` and ``{scratch}`` stand for; without a
    scratch folder ``{scratch}`` stays as written. Where cells have no project (``has_project``),
    ``{project}`` gives them nothing. What is in ``accepted`` has no types to be
    checked again; names, and what they mean here, are checked each time.
    Raises PolicyError, also for mode ``unsafe`` or display ``trusted`` without ``allow_unsafe``.
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
    """Return a policy that was made by a program, as ``load`` returns one of a file.

    Its relative paths are relative to ``project``. Raises PolicyError.
    """
    file = policy.name
    found = from_fields(policy.as_dict(), file=file, known_modules=_our_modules())
    places = Places(file, project, project, scratch, has_project=has_project)
    found = paths.expand_paths(found, places)
    return _allowed(found, file, allow_unsafe=allow_unsafe)


def from_fields(
    values: dict[str, Any],
    *,
    file: str,
    known_modules: Collection[str] | None = None,
    here: bool = True,
    accepted: Accepted | None = None,
) -> Policy:
    """Return the policy that has these fields, as a file or ``Policy.as_dict`` has them.

    With ``known_modules``, which need not be installed, nor those of a group, every name in it has
    to mean something ``here``, where cells are to run, or anywhere. Raises PolicyError.
    """
    from cellblock.policy import schema  # noqa: PLC0415 - kernels of presets start without

    plain_values = normal(values)
    digest = "" if accepted is None else _digest(plain_values)
    if accepted is not None and digest in accepted:
        policy = from_values(plain_values)
    else:
        policy = schema.parse(plain_values, file=file)
        # Where a whole number stands for a fraction, say, it has made something else of them.
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
    """Raise PolicyError for each name of a policy that means nothing; ``values`` are its file's."""
    from cellblock.policy import schema  # noqa: PLC0415 - kernels of presets start without

    named = values.get("allowed_modules", ())
    groups = [group for name, group in GROUPS.items() if name in named]
    known = frozenset(known_modules).union(*groups)
    schema.check(policy, file=file, known_modules=known, here=here)


def _digest(values: dict[str, Any]) -> str:
    """Return a name for these values, types included, and for what checks them."""
    checks = [(file.name, file.stat().st_mtime_ns) for file in sorted(_FOLDER.parent.glob("*.py"))]
    return hashlib.sha256(repr((checks, values)).encode(errors="backslashreplace")).hexdigest()


def _allowed(policy: Policy, spec: str, *, allow_unsafe: bool) -> Policy:
    if not allow_unsafe and (error := unsafe_error(policy, spec)):
        raise error
    return policy


def unsafe_error(
    policy: Policy, spec: str, *, ask: str = ASK, asks: bool = True
) -> PolicyError | None:
    """Return what ``load`` says of a policy that has to be asked for, None of any other.

    ``ask`` says how to allow that, ``asks`` that its user may be asked, if it has users asked.
    """
    if policy.mode != "unsafe":
        return None
    approve = ", approve it where you can be asked" if asks and policy.approvals != "never" else ""
    what = "mode unsafe has to be asked for"
    remedy = f"{ask}{approve}, or choose a policy of mode confined or safe."
    return PolicyError(what, file=spec, key="mode", value="'unsafe'", remedy=remedy)


def base_folder(spec: str, project: Path) -> Path:
    """Return the folder that relative paths of this policy begin in."""
    if FORMER_NAMES.get(spec, spec) in KNOWN:
        return project
    return Path(os.path.expanduser(spec)).resolve().parent


def load_for_check(spec: str) -> Policy:
    """Return what ``spec`` says of source, where nothing runs under it: for `cellblock check`.

    Nothing has to be here for it: packages that it allows need not be installed, nor its folders
    exist. Paths stay as written: ``paths.expand_paths_leniently``. Raises PolicyError, also for
    mode ``unsafe``: it judges nothing.
    """
    name = FORMER_NAMES.get(spec, spec)
    if name in KNOWN:
        policy = from_values(preset_values(name))
    else:
        _, base, own = _parts(spec)
        policy = from_fields(_merged(base, own, spec), file=spec, known_modules=(), here=False)
    if policy.mode == "unsafe":
        what = "no source is checked under this policy"
        remedy = "Choose a policy of mode safe or confined."
        raise PolicyError(what, file=spec, key="mode", value="'unsafe'", remedy=remedy)
    return policy


def _parts(spec: str) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Return a file's path, the values of what it extends, and its own."""
    path = Path(os.path.expanduser(spec))
    own = {"name": path.stem[:MAX_NAME], **_read(path, spec)}
    return path, _extended(own.pop("extends", "safe"), spec), own


def preset_values(name: str) -> dict[str, Any]:
    """Return the values of a shipped preset, or a tier's with its backend; and ``name``."""
    preset, backend = TIERS.get(name, (name, None))
    return normal(_shipped(preset) | {"name": name} | ({"backend": backend} if backend else {}))


@cache
def _shipped(name: str) -> dict[str, Any]:
    """Return a preset's values: its file's, and every list that the file does not replace."""
    values = tomllib.loads((_FOLDER / f"{name}.toml").read_text("utf-8"))
    safe = Policy()
    return _added({key: list(getattr(safe, key)) for key in LISTS}, values, name)


def preset_policy(name: str, changes: Mapping[str, Any] | None = None) -> Policy:
    """Return a preset with changes as a file has them, before any folder is known.

    Raises PolicyError, as for a file.
    """
    base = _extended(name, name)
    own = {key: plain(value) for key, value in (changes or {}).items()}
    file = str(own.get("name", name))
    if not own:
        return from_values(base)
    return from_fields(_merged(base, own, file), file=file, known_modules=_our_modules())


def _our_modules() -> set[str]:
    """Return the modules of presets and groups, which need not be installed."""
    presets = map(preset_values, PRESETS)
    ours = {name for preset in presets for name in preset.get("allowed_modules", ())}
    return ours | set(expand_groups(GROUPS))


def _preset(places: Places) -> Policy:
    # Not checked here: the tests check that what is shipped equals what ``schema`` makes of it.
    return paths.expand_paths(from_values(preset_values(places.file)), places)


def from_values(values: dict[str, Any]) -> Policy:
    """Build a policy of a file's values as they are."""
    made = {key: make(**frozen(values[key])) for key, make in SECTIONS.items() if key in values}
    return Policy().replace(**frozen(values) | made)


def _file(places: Places, accepted: Accepted | None) -> Policy:
    spec = places.file
    path, base, own = _parts(spec)
    inherited = () if "allowed_modules" in own else tuple(base.get("allowed_modules", ()))
    inherited += tuple(expand_groups(GROUPS))
    values = _merged(base, own, spec)
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
    try:
        if path.exists() and not path.is_file():
            # A pipe would be waited for.
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


def _merged(base: dict[str, Any], own: dict[str, Any], spec: str) -> dict[str, Any]:
    """Return the preset's values with the file's own in their place or, from [add], behind."""
    values = _added(base, normal(own), spec)
    for key in SECTIONS:
        if isinstance(values[key], dict):
            values[key] = base[key] | values[key]
    return values


def _added(base: dict[str, Any], own: dict[str, Any], spec: str) -> dict[str, Any]:
    """Return ``base`` with a file's own values in their place or, from [add], behind."""
    values = base | {key: value for key, value in own.items() if key != "add"}
    added = own.get("add", {})
    wrong = {} if isinstance(added, dict) else {"add": (added, "Write a table: [add].")}
    for key, more in added.items() if isinstance(added, dict) else ():
        if key not in LISTS:
            wrong[f"add.{key}"] = (more, _not_added(key))
        elif not isinstance(more, list):
            wrong[f"add.{key}"] = (more, "Give a list.")
        elif isinstance(before := values.get(key, []), list):
            values[key] = [*before, *more]
    if wrong:
        raise together([_cannot_be_added(key, *what, file=spec) for key, what in wrong.items()])
    return values


def _cannot_be_added(key: str, value: object, remedy: str, *, file: str) -> PolicyError:
    # Whoever writes a key into a policy is not shown it again: messages are kept.
    shown = "•••" if key == "add.credentials" else repr(value)
    return PolicyError("can't be added", file=file, key=key, value=shown, remedy=remedy)


def _not_added(key: str) -> str:
    """Return what to do about a key in [add] that is no list's."""
    if key in FIELDS:
        return f"Put {key} above [add], and above any other [table]."
    return closest(key, LISTS, what="lists")


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


#: What a table ``[tools]`` in a file has, and which fields that is.
_IN_TOOLS: Final = {"functions": "tools", "mcp": "mcp"}


def _with_sizes(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with sizes that are texts, ``"8 GiB"``, as bytes, in tables, too."""
    made = dict[str, Any]()
    for key, value in values.items():
        if isinstance(value, dict):
            made[key] = _with_sizes(value)
        elif isinstance(value, str) and is_size(key) and (size := size_of(value)) is not None:
            made[key] = size
        else:
            made[key] = value
    return made


def normal(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with former spellings, "none", sizes and groups of names replaced."""
    normal = {
        key: None if key in OPTIONAL_FIELDS and v == "none" else v
        for key, v in _with_sizes(values).items()
    }
    tools: Any = normal.get("tools")
    if isinstance(tools, dict) and tools.keys() <= {"functions", "mcp"}:
        del normal["tools"]
        normal |= {_IN_TOOLS[key]: own for key, own in tools.items()}
    if isinstance(mode := normal.get("mode"), str):
        normal["mode"] = FORMER_NAMES.get(mode, mode)
    modules: Any = normal.get("allowed_modules")
    if _is_texts(modules):
        normal["allowed_modules"] = expand_groups(modules)
    denied: Any = normal.get("read_deny_paths")
    if _is_texts(denied):
        normal["read_deny_paths"] = expand_group(denied)
    return normal
