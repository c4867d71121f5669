"""Narrowing: makes a policy narrower, for a notebook or for the rest of a session (promise P8).

``narrow`` takes a policy and changes to it, and returns a policy that allows no more, or raises an
error with key, value and remedy.

A field's row says in which way it narrows (``rows.Narrower``); this module has a rule for each way.
A rule compares two whole policies. It returns why the second allows more than the first, or an
empty string. The text ends a sentence: "timeout: 100 is more than 60". A field that grants nothing
to cells, or that only the operator may set, can't be narrowed, and its row says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis.findings import ONLY_THE_POLICY
from cellblock.errors import PolicyError, WideningError
from cellblock.policy.devices import covers
from cellblock.policy.load import from_fields
from cellblock.policy.model import FIELDS, PATHS, ROWS
from cellblock.policy.paths import pattern_beneath, present, resolve, within
from cellblock.policy.rows import Beneath, EnforcedBy, Never, Towards, Way
from cellblock.policy.vocabulary import Table, closest, is_of_server, tool_name

if TYPE_CHECKING:
    from cellblock.policy.model import Policy
    from cellblock.policy.paths import Places


#: A rule gets the field's name, the policy before the narrowing, and the policy after it.
Rule = Callable[[str, "Policy", "Policy"], str]
_MAX_SHOWN: Final = 200


def toml_text(value: object) -> str:
    """Return a value as TOML writes it, cut if it is long."""
    if value is None:
        text = '"none"'
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, tuple):
        text = f"[{', '.join(map(repr, value))}]"
    elif isinstance(value, float):
        text = repr(value).removesuffix(".0")
    elif isinstance(value, dict) and any(isinstance(table, Table) for table in value.values()):
        text = toml_text(tuple(value))  # the names of the tables
    else:
        text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


# --- rules ------------------------------------------------------------------------------------
#
# A rule's docstring says what it allows.


def _fewer(field: str, old: Policy, new: Policy) -> str:
    """Allow the removal of entries, not additions."""
    before = getattr(old, field)
    added = next((entry for entry in getattr(new, field) if entry not in before), None)
    return "" if added is None else f"{toml_text(added)} is not among what the policy has"


def _more(field: str, old: Policy, new: Policy) -> str:
    """Allow additions of entries, not removals."""
    after = getattr(new, field)
    removed = next((entry for entry in getattr(old, field) if entry not in after), None)
    return "" if removed is None else f"{toml_text(removed)} would be gone"


def _lower(field: str, old: Policy, new: Policy) -> str:
    """Allow a lower number, or any number if there was no limit."""
    before = getattr(old, field)
    after = getattr(new, field)
    if before is None or (after is not None and after <= before):
        return ""
    return f"{toml_text(after)} is more than {toml_text(before)}"


def _off(field: str, old: Policy, new: Policy) -> str:
    """Allow switching the field off, not on."""
    return "it is off" if getattr(new, field) and not getattr(old, field) else ""


def _towards(order: Sequence[str], field: str, old: Policy, new: Policy) -> str:
    """Allow a word that comes later in ``order``."""
    before = getattr(old, field)
    after = getattr(new, field)
    return "" if order.index(after) >= order.index(before) else f"it is {toml_text(before)}"


def _beneath(granting: Sequence[str], field: str, old: Policy, new: Policy) -> str:
    """Allow roots beneath those of the fields in ``granting``.

    All paths are canonical, so no link leads out of a root.
    """
    granted = tuple(root for name in granting for root in getattr(old, name))
    for path in getattr(new, field):
        if not any(within(path, root) for root in granted):
            return f"{toml_text(path)} lies beneath none of {toml_text(granted)}"
        if name := pattern_beneath(path, granted, old.read_deny_paths):
            return f"{toml_text(path)} is denied by {toml_text(name)}"
    return ""


def _denied(_field: str, old: Policy, new: Policy) -> str:
    """Allow more denied paths, or a folder in place of paths in it."""
    for path in old.read_deny_paths:
        if not any(within(path, folder) for folder in new.read_deny_paths):
            return f"{toml_text(path)} would no longer be denied"
    return ""


def _network(_field: str, old: Policy, new: Policy) -> str:
    """Allow ``false``, fewer addresses, or a list in place of ``true``."""
    before = old.network_access
    after = new.network_access
    if before is True or after is False:
        return ""
    if after is True:
        return f"it is {toml_text(before)}"
    listed = () if isinstance(before, bool) else before
    added = next((entry for entry in after if entry not in listed), None)
    return "" if added is None else f"{toml_text(added)} is not among what the policy has"


def _ports(field: str, old: Policy, new: Policy) -> str:
    """Allow fewer ports, or a list in place of ``any``."""
    if old.ports == "any":
        return ""
    return 'it is a list, and "any" is more' if new.ports == "any" else _fewer(field, old, new)


def _devices(field: str, old: Policy, new: Policy) -> str:
    """Allow fewer devices, or some of those that an entry stands for."""
    for entry in getattr(new, field):
        if not any(covers(wide, entry) for wide in getattr(old, field)):
            return f"{toml_text(entry)} is not among what the policy has"
    return ""


def _tool_timeouts(_field: str, old: Policy, new: Policy) -> str:
    """Allow a lower time limit for each tool, whether it has its own or the one of all tools."""
    timed = (*old.tool_timeouts, *new.tool_timeouts)
    names = (name for name in timed if is_of_server(name, old.mcp))
    for name in (*map(tool_name, new.tools), *names):
        before = old.tool_timeouts.get(name, old.tool_timeout)
        after = new.tool_timeouts.get(name, new.tool_timeout)
        if before is not None and (after is None or after > before):
            return f"{toml_text(after)} for {name} is more than {toml_text(before)}"
    return ""


def _fewer_tables(field: str, old: Policy, new: Policy) -> str:
    """Allow the removal of tables, not additions or changes."""
    before = getattr(old, field)
    after = getattr(new, field)
    for name, table in after.items():
        if name not in before:
            return f"{toml_text(name)} is not among what the policy has"
        if table != before[name]:
            return f"{toml_text(name)} is another than the policy has"
    return ""


_RULES: Final[dict[Way, Rule]] = {
    Way.fewer: _fewer,
    Way.fewer_tables: _fewer_tables,
    Way.more: _more,
    Way.lower: _lower,
    Way.lower_each: _tool_timeouts,
    Way.off: _off,
    Way.denied: _denied,
    Way.addresses: _network,
    Way.ports: _ports,
    Way.devices: _devices,
}
#: The ways of lists that allow less the more entries they have.
_ADDED_TO: Final = (Way.more, Way.denied)


def wider(field: str, old: Policy, new: Policy) -> str:
    """Return why a field allows more in ``new`` than in ``old``; empty if it does not."""
    if getattr(old, field) == getattr(new, field):
        return ""
    match ROWS[field].narrower:
        case Never(why=why):
            return why
        case Towards(order=order):
            return _towards(order, field, old, new)
        case Beneath(granting=granting):
            return _beneath(granting, field, old, new)
        case way:
            return _RULES[way](field, old, new)


def may_be_added_to(field: str) -> bool:
    """Return whether ``add`` narrows a field: its list allows less the more entries it has."""
    return ROWS[field].narrower in _ADDED_TO


def takes_new_guest(field: str, old: Policy, new: Policy) -> bool:
    """Return whether the change of a field takes a new guest."""
    if field == "network_access" and old.network_access is True:
        # With True, a guest connects directly, and has no way to reach listed hosts only. So going
        # from True to a list takes a new guest; going from True to nothing does not.
        return new.network_access not in (True, False, ())
    return ROWS[field].enforced_by is EnforcedBy.guest


# --- narrowing ----------------------------------------------------------------------------------

#: The table of changes, as of a file, whose entries are added to lists.
ADD: Final = "add"
#: The most entries of a list. It is bounded because each path is looked up.
MAX_ENTRIES: Final = 1_000
_SCRATCH: Final = "{scratch}"
#: Fields that only count in mode safe, where the source of cells is judged.
_JUDGED: Final = frozenset({"allowed_modules", "magics"})
_REMEDY: Final = ONLY_THE_POLICY


def narrow(policy: Policy, changes: Mapping[str, Any], *, places: Places) -> Policy:
    """Return ``policy`` with ``changes``, which are values by field as in a file, with ``[add]``.

    A relative path begins at ``places.folder``. Entries of ``tool_timeouts`` that are not named
    stay. Raises PolicyError for the first mistake; WideningError if a change would allow more, or
    if cells and notebooks may not change the field.
    """
    narrowed, wrong = try_narrow(policy, changes, places=places)
    if wrong:
        raise wrong[0]
    return narrowed


def try_narrow(
    policy: Policy, changes: Mapping[str, Any], *, places: Places
) -> tuple[Policy, tuple[PolicyError, ...]]:
    """Narrow as ``narrow`` does. Return the narrower policy, or the old one and all errors.

    There is at most one error for each key.
    """
    values = dict[str, Any]()
    wrong = dict[str, PolicyError]()
    for key, value in _unfolded(changes):
        try:
            checked = _new_value(policy, key, value, places)
            if not values.keys().isdisjoint(checked):
                raise _mistake("said twice", key, value, "Say it once.", places)
            values |= checked
        except PolicyError as error:
            wrong[key] = error
    narrowed = _consistent(policy, policy.replace(**values))
    for key in values:
        if why := wider(key, policy, narrowed):
            wrong[key] = _widening(key, values[key], why, places)
        elif key in _JUDGED and narrowed.mode != "safe" and values[key] != getattr(policy, key):
            why = f"no effect in mode {narrowed.mode}, which refuses no cell for its source"
            remedy = 'Narrow the mode as well: mode="safe".'
            wrong[key] = _mistake(why, key, values[key], remedy, places)
    if not wrong:
        # Changes that are each fine may still not fit together: check the whole policy.
        modules = policy.allowed_modules
        values = narrowed.as_dict()
        try:
            from_fields(values, file=places.file, known_modules=modules, here=places.here)
        except PolicyError as error:
            wrong[error.key] = error
    return (policy if wrong else narrowed), tuple(wrong.values())


def changed_fields(old: Policy, new: Policy) -> tuple[str, ...]:
    """Return the names of the fields in which two policies differ, in the model's order."""
    return tuple(key for key in FIELDS if getattr(old, key) != getattr(new, key))


def check_narrower(old: Policy, new: Policy, *, file: str) -> None:
    """Raise WideningError if ``new`` allows more than ``old``. ``file`` is named in the error."""
    for key in FIELDS:
        if why := wider(key, old, new):
            raise WideningError(why, file=file, key=key, remedy=_REMEDY)


def _unfolded(changes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the changes by key; a key in the table ``add`` becomes ``add.KEY``."""
    additions = changes.get(ADD)
    if not isinstance(additions, Mapping):
        return list(changes.items())
    entries = [(key, value) for key, value in changes.items() if key != ADD]
    return [*entries, *((f"{ADD}.{key}", value) for key, value in additions.items())]


def _new_value(policy: Policy, key: str, value: Any, places: Places) -> dict[str, Any]:
    """Return a field's name and new value, of the right type and with expanded paths.

    Raises PolicyError, WideningError.
    """
    field = key.removeprefix(f"{ADD}.")
    if field not in FIELDS:
        remedy = closest(field, FIELDS, what="keys")
        raise _mistake("no such key", key, "", remedy, places)
    if isinstance(value, list | tuple) and len(value) > MAX_ENTRIES:
        raise _mistake(f"more than {MAX_ENTRIES:,} entries", key, "", "Name folders.", places)
    if field != key:
        if not may_be_added_to(field):
            raise _widening(key, value, "what is added to this list is allowed", places)
        if not isinstance(value, list | tuple):
            raise _mistake("can't be added", key, value, "Give a list.", places)
        value = [*getattr(policy, field), *value]
    elif field == "tool_timeouts" and isinstance(value, Mapping):
        value = policy.tool_timeouts | dict(value)
    elif ROWS[field].narrower is Way.fewer_tables and isinstance(value, list | tuple):
        value = _kept_tables(policy, key, value, places)
    parsed = getattr(from_fields(policy.as_dict() | {field: value}, file=places.file), field)
    return {field: _expanded(policy, field, parsed, places) if field in PATHS else parsed}


def _kept_tables(
    policy: Policy, key: str, names: Sequence[Any], places: Places
) -> dict[str, dict[str, Any]]:
    """Return the named tables of a field: a cell gives the names of those that stay."""
    before = policy.as_dict()[key]
    unknown = next(
        (name for name in names if not isinstance(name, str) or name not in before), None
    )
    if unknown is not None:
        why = f"{toml_text(unknown)} is not among what the policy has"
        raise _widening(key, tuple(names), why, places)
    return {name: table for name, table in before.items() if name in names}


def _expanded(policy: Policy, key: str, entries: Sequence[str], places: Places) -> tuple[str, ...]:
    """Return expanded paths. Raises PolicyError for one that must exist and does not.

    Paths that would widen the policy are refused before that, so that a cell does not learn
    whether a path that it may not see exists.
    """
    paths = [resolve(entry, key=key, places=places) for entry in entries]
    resolved = _distinct_paths(paths)
    if PATHS[key] and (why := wider(key, policy, policy.replace(**{key: resolved}))):
        raise _widening(key, resolved, why, places)
    if not places.here:
        return resolved
    return _distinct_paths(
        present(entry, path, key=key, places=places, must_exist=PATHS[key])
        for entry, path in zip(entries, paths, strict=True)
    )


def _distinct_paths(paths: Iterable[str | None]) -> tuple[str, ...]:
    """Return the paths that are not None, once each."""
    # If no kernel runs, {scratch} stays as written, and ".." must not lead out of it.
    named = (
        os.path.normpath(path) if path.startswith(_SCRATCH) else path
        for path in paths
        if path is not None
    )
    return tuple(dict.fromkeys(named))


def _consistent(old: Policy, new: Policy) -> Policy:
    """Return ``new`` without time limits of removed tools and bindings of removed modules."""
    removed = set(map(tool_name, old.tools)) - set(map(tool_name, new.tools))
    timeouts = {name: seconds for name, seconds in new.tool_timeouts.items() if name not in removed}
    bindings = new.pre_imported
    if new.mode == "safe" and bindings:
        rules = new.rules()
        bindings = tuple(name for name in bindings if rules.allows_module(name))
    return new.replace(tool_timeouts=timeouts, pre_imported=bindings)


def _mistake(message: str, key: str, value: Any, remedy: str, places: Places) -> PolicyError:
    text = toml_text(value) if value != "" else ""
    return PolicyError(message, file=places.file, key=key, value=text, remedy=remedy)


def _widening(key: str, value: Any, why: str, places: Places) -> WideningError:
    return WideningError(why, file=places.file, key=key, value=toml_text(value), remedy=_REMEDY)
