"""Making a policy narrower: for a notebook, or for what is left of a session (promise P8).

``narrow`` is the whole of it: a policy and changes in, a policy that allows no more out, or an
error that names key, value and remedy. What counts as narrower is ``narrower.TABLE``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import PolicyError, WideningError
from cellblock.policy.model import FIELDS, PATHS
from cellblock.policy.narrower import TABLE, said
from cellblock.policy.paths import present, resolve
from cellblock.policy.suggest import closest
from cellblock.policy.vocabulary import tool_name

if TYPE_CHECKING:
    from cellblock.policy.model import Policy
    from cellblock.policy.paths import Places

#: In changes, as in a file: what is added to a list, where that allows less.
ADD: Final = "add"
#: Entries of a list: each path among them is looked up.
MOST_ENTRIES: Final = 1_000
_SCRATCH: Final = "{scratch}"
_REMEDY: Final = "Only the operator can allow more, in the policy of the kernel."


def narrow(policy: Policy, changes: Mapping[str, Any], *, places: Places) -> Policy:
    """Return ``policy`` with ``changes``: field to value, as a file has them, ``[add]`` as well.

    A relative path is relative to ``places.folder``. Entries of ``tool_timeouts`` that are not
    named stay. Raises PolicyError for the first thing wrong, WideningError for what would allow
    more, or is not for cells and notebooks to change.
    """
    narrowed, wrong = weigh(policy, changes, places=places)
    if wrong:
        raise wrong[0]
    return narrowed


def weigh(
    policy: Policy, changes: Mapping[str, Any], *, places: Places
) -> tuple[Policy, tuple[PolicyError, ...]]:
    """Return what ``narrow`` does, or the policy as it is and all that is wrong, one a key."""
    values, wrong = dict[str, Any](), dict[str, PolicyError]()
    for key, value in _unfolded(changes):
        try:
            found = _value(policy, key, value, places)
            if not values.keys().isdisjoint(found):
                raise _mistake("said twice", key, value, "Say it once.", places)
            values |= found
        except PolicyError as error:
            wrong[key] = error
    narrowed = _consistent(policy, policy.replace(**values))
    for key in values:
        if why := _wider(key, policy, narrowed):
            wrong[key] = _widening(key, values[key], why, places)
    if not wrong:
        try:
            _check(narrowed, policy, places)
        except PolicyError as error:
            wrong[error.key] = error
    return (policy if wrong else narrowed), tuple(wrong.values())


def changed(old: Policy, new: Policy) -> tuple[str, ...]:
    """Return the fields in which two policies differ, in the model's order."""
    return tuple(key for key in FIELDS if getattr(old, key) != getattr(new, key))


def check_narrower(old: Policy, new: Policy, *, file: str) -> None:
    """Raise WideningError where a policy that came from elsewhere allows more than ``old``."""
    for key in changed(old, new):
        if why := TABLE[key].rule(key, old, new):
            raise WideningError(why, file=file, key=key, value="", remedy=_REMEDY)


def names_paths(changes: object) -> bool:
    """Say whether changes name paths: what those come to depends on the machine and the folder."""
    if not isinstance(changes, Mapping):
        return False
    return any(str(key).removeprefix(f"{ADD}.") in PATHS for key, _ in _unfolded(changes))


def _wider(key: str, old: Policy, new: Policy) -> str:
    return "" if getattr(old, key) == getattr(new, key) else TABLE[key].rule(key, old, new)


def _unfolded(changes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the changes, those in the table ``add`` as ``add.KEY``."""
    added = changes.get(ADD)
    if not isinstance(added, Mapping):
        return list(changes.items())
    own = [(key, value) for key, value in changes.items() if key != ADD]
    return [*own, *((f"{ADD}.{key}", value) for key, value in added.items())]


def _value(policy: Policy, key: str, value: Any, places: Places) -> dict[str, Any]:
    """Return a field's new value by its name, checked for its type and with paths expanded."""
    field = key.removeprefix(f"{ADD}.")
    if field not in FIELDS:
        remedy = closest(field, FIELDS, what="keys")
        raise _mistake("no such key", key, "", remedy, places)
    if isinstance(value, list | tuple) and len(value) > MOST_ENTRIES:
        raise _mistake(f"more than {MOST_ENTRIES:,} entries", key, "", "Name folders.", places)
    if field != key:
        added = _added(field, key, value, places)
        value = [*getattr(policy, field), *added]
    elif field == "tool_timeouts" and isinstance(value, Mapping):
        value = policy.tool_timeouts | dict(value)
    parsed = _parsed(policy, field, value, places)
    return {field: _expanded(policy, field, parsed, places) if field in PATHS else parsed}


def _added(field: str, key: str, value: Any, places: Places) -> list[Any]:
    if not TABLE[field].adds:
        raise _widening(key, value, "what is added to it is allowed", places)
    if not isinstance(value, list | tuple):
        raise _mistake("can't be added", key, value, "Give a list.", places)
    return list(value)


def _parsed(policy: Policy, field: str, value: Any, places: Places) -> Any:
    from cellblock.policy import schema  # noqa: PLC0415 - kernels start without
    from cellblock.policy.load import normal  # noqa: PLC0415 - as above

    whole = schema.parse(policy.as_dict() | normal({field: value}), file=places.file)
    return getattr(whole, field)


def _expanded(policy: Policy, key: str, entries: Sequence[str], places: Places) -> tuple[str, ...]:
    """Return paths expanded; of what no cell may see it is not told whether it is there."""
    paths = [resolve(entry, key=key, places=places) for entry in entries]
    foreseen = _named(paths)
    if PATHS[key] and (why := _wider(key, policy, policy.replace(**{key: foreseen}))):
        raise _widening(key, foreseen, why, places)
    if not places.here:
        return foreseen
    return _named(
        present(entry, path, key=key, places=places, must_exist=PATHS[key])
        for entry, path in zip(entries, paths, strict=True)
    )


def _named(found: Iterable[str | None]) -> tuple[str, ...]:
    # Where no kernel runs, what is in the scratch folder keeps its name; ".." leads out of it.
    named = (
        os.path.normpath(path) if path.startswith(_SCRATCH) else path
        for path in found
        if path is not None
    )
    return tuple(dict.fromkeys(named))


def _consistent(old: Policy, new: Policy) -> Policy:
    """Return the policy without what only made sense with what was taken away."""
    gone = set(map(tool_name, old.tools)) - set(map(tool_name, new.tools))
    timeouts = {name: each for name, each in new.tool_timeouts.items() if name not in gone}
    bound = new.pre_imported
    if new.mode == "safe" and bound:
        rules = new.rules()
        bound = tuple(name for name in bound if rules.allows_module(name))
    return new.replace(tool_timeouts=timeouts, pre_imported=bound)


def _check(narrowed: Policy, policy: Policy, places: Places) -> None:
    """Raise PolicyError for what is named and means nothing: a capability, an address."""
    from cellblock.policy import checks  # noqa: PLC0415 - as above

    if not places.here:  # what is made ready need not be installed
        narrowed = narrowed.replace(preload=(), pre_imported=())
    known = policy.allowed_modules
    checks.check(narrowed, file=places.file, missing_is_fine=known, here=places.here)


def _mistake(message: str, key: str, value: Any, remedy: str, places: Places) -> PolicyError:
    shown = said(value) if value != "" else ""
    return PolicyError(message, file=places.file, key=key, value=shown, remedy=remedy)


def _widening(key: str, value: Any, why: str, places: Places) -> WideningError:
    return WideningError(why, file=places.file, key=key, value=said(value), remedy=_REMEDY)
