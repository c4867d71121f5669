"""From a preset's name or a file's path to a policy.

A file is TOML. Its keys are the fields of ``model.Policy``, and two more::

    extends = "data"           # start from a preset; a key given here replaces the preset's
    [add]                      # or adds to the preset's list
    allowed_modules = ["mylib"]

Whatever is wrong raises exactly one ``PolicyError`` that names file, key, value and remedy.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from pathlib import Path
from typing import Any, Final

from cellblock.errors import PolicyError
from cellblock.policy.model import LIMITS, LISTS, PATHS, Policy
from cellblock.policy.paths import Places, expand, expand_own
from cellblock.policy.sections import SECTIONS
from cellblock.policy.suggest import closest
from cellblock.policy.vocabulary import PRESETS, SPELLINGS, TIERS

MAX_FILE_BYTES: Final = 2**20

_FOLDER: Final = Path(__file__).parent / "presets"
#: What a policy is called that is in no file of the operator's.
KNOWN: Final = (*PRESETS, *TIERS)


def load(spec: str, *, project: Path, scratch: Path | None = None, allow_unsafe: bool) -> Policy:
    """Return the policy that ``spec`` names: a preset, a former name, a tier, or a TOML file.

    ``project`` and ``scratch`` are what ``{project}`` and ``{scratch}`` stand for; without a
    scratch folder ``{scratch}`` stays as written.
    Raises PolicyError, also for mode ``unsafe`` or display ``trusted`` without ``allow_unsafe``.
    """
    name = SPELLINGS.get(spec, spec)
    policy = _preset(name, project, scratch) if name in KNOWN else _file(spec, project, scratch)
    if name in TIERS:
        _check_backend(policy, spec)
    if not allow_unsafe and (field := policy.to_be_asked_for()):
        value = getattr(policy, field)
        raise PolicyError(
            f"{field} {value} has to be asked for",
            file=spec,
            key=field,
            value=repr(value),
            remedy=f"Start the kernel with --allow-unsafe, or {_INSTEAD[field]}.",
        )
    return policy


_INSTEAD: Final = {
    "mode": "choose a policy of mode safe",
    "display": "choose display isolated, which runs interactive output apart from the page",
}


def foresee(spec: str, *, project: Path, scratch: Path | None = None) -> Policy:
    """Return what ``load`` most likely will, in a tenth of the time: nothing is checked.

    Only for what is thrown away unless ``load`` returns the same. Raises PolicyError, TypeError or
    ValueError where ``load`` will raise.
    """
    name = SPELLINGS.get(spec, spec)
    if name in KNOWN:
        return _preset(name, project, scratch)
    path = Path(os.path.expanduser(spec))  # noqa: PTH111
    own = {"name": path.stem, **_read(path, spec)}
    values = _merged(_extended(own.pop("extends", "safe"), spec), own, spec)
    places = Places(spec, path.resolve().parent, project, scratch)
    return _expanded(unchecked(values), places)


def preset_values(name: str) -> dict[str, Any]:
    """Return a shipped preset as its file has it, or a tier's with its backend; and ``name``."""
    preset, backend = TIERS.get(name, (name, None))
    values = tomllib.loads((_FOLDER / f"{preset}.toml").read_text("utf-8"))
    return normal(values | {"name": name} | ({"backend": backend} if backend else {}))


def _preset(name: str, project: Path, scratch: Path | None) -> Policy:
    # Not checked here: the tests check that what is shipped equals what ``schema`` makes of it.
    policy = unchecked(preset_values(name))
    return _expanded(policy, Places(name, project, project, scratch))


def unchecked(values: dict[str, Any]) -> Policy:
    """Build a policy of a file's values as they are."""
    frozen = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    sections = {key: SECTIONS[key](**values[key]) for key in SECTIONS if key in values}
    return Policy().replace(**frozen | sections)


def _check_backend(policy: Policy, spec: str) -> None:
    from cellblock.policy import checks  # noqa: PLC0415 - as in _file

    checks.check(policy, file=spec, missing_is_fine=policy.allowed_modules)


def _file(spec: str, project: Path, scratch: Path | None) -> Policy:
    from cellblock.policy import checks, schema  # noqa: PLC0415  # a preset needs neither

    path = Path(os.path.expanduser(spec))  # noqa: PTH111  # pathlib raises for an unknown user
    own = {"name": path.stem, **_read(path, spec)}
    base = _extended(own.pop("extends", "safe"), spec)
    policy = schema.parse(_merged(base, own, spec), file=spec)
    inherited = () if "allowed_modules" in own else tuple(base.get("allowed_modules", ()))
    checks.check(policy, file=spec, missing_is_fine=inherited)
    policy = _expanded(policy, Places(spec, path.resolve().parent, project, scratch))
    _refuse_writable(path, policy, spec)
    return policy


def _read(path: Path, spec: str) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            # A pipe would be waited for.
            raise _unreadable(spec, "not a regular file", "Give a file.")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise _unreadable(spec, "larger than 1 MiB", "A policy is a page of text.")
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise _unreadable(spec, f"not TOML: {failure}", "Mend it there.") from None
    except FileNotFoundError:
        if "/" in spec or spec.endswith(".toml"):
            raise _unreadable(spec, "no such file", "Check the path.") from None
        remedy = closest(spec, (*KNOWN, *SPELLINGS), what="presets")
        raise _unreadable(spec, "no such policy", f"{remedy} Or give a file.") from None
    except (OSError, ValueError) as failure:
        detail = getattr(failure, "strerror", None) or str(failure)
        raise _unreadable(spec, f"can't be read: {detail}", "Give a readable file.") from None


def _unreadable(spec: str, message: str, remedy: str) -> PolicyError:
    return PolicyError(message, file=spec, key="", value="", remedy=remedy)


def _extended(name: object, spec: str) -> dict[str, Any]:
    preset = SPELLINGS.get(name, name) if isinstance(name, str) else None
    if preset in KNOWN:
        return preset_values(str(preset))
    raise PolicyError(
        "no such preset",
        file=spec,
        key="extends",
        value=repr(name),
        remedy=closest(str(name), KNOWN, what="presets"),
    )


def _merged(base: dict[str, Any], own: dict[str, Any], spec: str) -> dict[str, Any]:
    """Return the preset's values with the file's own in their place or, from [add], behind."""
    values = base | normal({key: value for key, value in own.items() if key != "add"})
    for key in SECTIONS:
        if isinstance(values[key], dict):
            values[key] = base[key] | values[key]
    added = own.get("add", {})
    if not isinstance(added, dict):
        raise _not_addable(spec, "add", added, "Write a table: [add].")
    for key, more in added.items():
        if key not in LISTS:
            raise _not_addable(spec, f"add.{key}", more, closest(key, LISTS, what="lists"))
        if not isinstance(more, list):
            raise _not_addable(spec, f"add.{key}", more, "Give a list.")
        if isinstance(before := values.get(key, []), list):
            values[key] = [*before, *more]
    return values


def _not_addable(spec: str, key: str, value: object, remedy: str) -> PolicyError:
    return PolicyError("can't be added", file=spec, key=key, value=repr(value), remedy=remedy)


def normal(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with former spellings and "none" replaced."""
    normal = {key: None if key in LIMITS and v == "none" else v for key, v in values.items()}
    if isinstance(mode := normal.get("mode"), str):
        normal["mode"] = SPELLINGS.get(mode, mode)
    return normal


def _expanded(policy: Policy, places: Places) -> Policy:
    paths = {}
    for key, must_exist in PATHS.items():
        entries = (
            expand(entry, key=key, places=places, must_exist=must_exist)
            for entry in getattr(policy, key)
        )
        paths[key] = tuple(dict.fromkeys(entry for entry in entries if entry is not None))
    folder = expand_own(policy.audit.folder, key="audit.folder", places=places)
    return policy.replace(**paths, audit=dataclasses.replace(policy.audit, folder=folder))


def unplaced(policy: Policy, scratch: Path) -> Policy:
    """Return a policy with ``{scratch}`` for one kernel's folder: its digest is every kernel's."""
    folder = os.path.realpath(scratch)
    paths = {
        key: tuple(entry.replace(folder, "{scratch}", 1) for entry in getattr(policy, key))
        for key in PATHS
    }
    return policy.replace(**paths)


def _refuse_writable(path: Path, policy: Policy, spec: str) -> None:
    """Refuse a policy whose own file its cells could rewrite for the next start."""
    own = path.resolve()
    for root in policy.filesystem_write_roots:
        if own.is_relative_to(root):
            raise PolicyError(
                "cells could rewrite this policy file",
                file=spec,
                key="filesystem_write_roots",
                value=repr(root),
                remedy="Move the file out of the folders that cells may write.",
            )
