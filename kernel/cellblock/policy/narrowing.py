"""Make a policy narrower: for a notebook, or for what is left of a session (promise P8).

``TABLE`` says field by field what "narrower" means, so that no field is without a rule. A rule
looks at two whole policies and says why the second allows more than the first, or nothing. What it
says ends a sentence: "timeout: 100 is more than 60". Fields that grant nothing to cells, or are the
operator's alone, are not narrowed at all, and say why.

``narrow`` takes a policy and changes, and returns a policy that allows no more, or raises an error
that names key, value and remedy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import PolicyError, WideningError
from cellblock.policy.load import from_fields
from cellblock.policy.model import FIELDS, PATHS
from cellblock.policy.paths import pattern_beneath, present, resolve, within
from cellblock.policy.vocabulary import closest, is_of_server, tool_name

if TYPE_CHECKING:
    from cellblock.policy.model import Policy
    from cellblock.policy.paths import Places


#: Given the field's name, the policy that there is, and the one that there would be.
Rule = Callable[[str, "Policy", "Policy"], str]
_MAX_SHOWN: Final = 200


class EnforcedBy(Enum):
    """Who enforces a field, and so what it takes to have less of it."""

    host = "host"
    """The host: it keeps less from one cell to the next."""

    locks = "locks"
    """Locks of the guest's, on which more can be laid."""

    guest = "guest"
    """What a guest is made of: only a new one has less of it."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """How one field is narrowed: in words, for the documentation, and by what rule.

    Without words, it is not. ``adds``: the more entries its list has, the less is allowed.
    ``takes_new_guest`` says so of two policies, where whoever enforces the field would do else.
    """

    words: str
    rule: Rule
    enforced_by: EnforcedBy = EnforcedBy.host
    adds: bool = False
    takes_new_guest: Callable[[Policy, Policy], bool] = lambda _old, _new: False


def toml_text(value: object) -> str:
    """Return a value as TOML has it, cut where it is long."""
    if value is None:
        text = '"none"'
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, tuple):
        text = f"[{', '.join(map(repr, value))}]"
    elif isinstance(value, float):
        text = repr(value).removesuffix(".0")
    else:
        text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


# --- rules ------------------------------------------------------------------------------------


def _fewer(field: str, old: Policy, new: Policy) -> str:
    """Take entries away, and add none."""
    before = getattr(old, field)
    more = next((entry for entry in getattr(new, field) if entry not in before), None)
    return "" if more is None else f"{toml_text(more)} is not among what the policy has"


def _more(field: str, old: Policy, new: Policy) -> str:
    """Add entries, and take none away."""
    after = getattr(new, field)
    less = next((entry for entry in getattr(old, field) if entry not in after), None)
    return "" if less is None else f"{toml_text(less)} would be gone"


def _lower(field: str, old: Policy, new: Policy) -> str:
    """Lower a number; where there was no limit, any is one."""
    before, after = getattr(old, field), getattr(new, field)
    if before is None or (after is not None and after <= before):
        return ""
    return f"{toml_text(after)} is more than {toml_text(before)}"


def _off(field: str, old: Policy, new: Policy) -> str:
    """Switch off what is on."""
    return "it is off" if getattr(new, field) and not getattr(old, field) else ""


def _towards(*order: str) -> Rule:
    """Return the rule that a word becomes one that comes later in ``order``."""

    def rule(field: str, old: Policy, new: Policy) -> str:
        before, after = getattr(old, field), getattr(new, field)
        return "" if order.index(after) >= order.index(before) else f"it is {toml_text(before)}"

    return rule


def _beneath(*granting: str) -> Rule:
    """Return the rule that each root lies beneath one that grants as much.

    All are canonical, so no link leads out.
    """

    def rule(field: str, old: Policy, new: Policy) -> str:
        granted = tuple(root for name in granting for root in getattr(old, name))
        for path in getattr(new, field):
            if not any(within(path, root) for root in granted):
                return f"{toml_text(path)} lies beneath none of {toml_text(granted)}"
            if name := pattern_beneath(path, granted, old.read_deny_paths):
                return f"{toml_text(path)} is denied by {toml_text(name)}"
        return ""

    return rule


def _denied(_field: str, old: Policy, new: Policy) -> str:
    """Deny whatever was denied, by its own name or by a folder that it lies in."""
    for path in old.read_deny_paths:
        if not any(within(path, folder) for folder in new.read_deny_paths):
            return f"{toml_text(path)} would no longer be denied"
    return ""


def _network(_field: str, old: Policy, new: Policy) -> str:
    before, after = old.network_access, new.network_access
    if before is True or after is False:
        return ""
    if after is True:
        return f"it is {toml_text(before)}"
    known = () if isinstance(before, bool) else before
    more = next((entry for entry in after if entry not in known), None)
    return "" if more is None else f"{toml_text(more)} is not among what the policy has"


def _tool_timeouts(_field: str, old: Policy, new: Policy) -> str:
    timed = (*old.tool_timeouts, *new.tool_timeouts)
    names = (name for name in timed if is_of_server(name, old.mcp))
    for name in (*map(tool_name, new.tools), *names):
        before = old.tool_timeouts.get(name, old.tool_timeout)
        after = new.tool_timeouts.get(name, new.tool_timeout)
        if before is not None and (after is None or after > before):
            return f"{toml_text(after)} for {name} is more than {toml_text(before)}"
    return ""


def _never(why: str) -> Narrowing:
    """Refuse any change, for this reason."""
    return Narrowing("", lambda _field, _old, _new: why)


# --- the table --------------------------------------------------------------------------------

_OPERATORS: Final = "what enforces a policy is the operator's to choose"
_LOADED: Final = "it says what is made ready for cells, and allows nothing"
_ADMITTED: Final = "which cells may run at all is the operator's to say, before there is any"
_ASKED: Final = "to ask users is less for calls and more for imports: the operator's to say"
_COPIED: Final = "what is copied out is for others than cells, and the operator's to say"
_GRANTED: Final = (
    "it is granted table by table, and kept by workers of the host's own: the operator's to change"
)
_LOCKS, _GUEST = EnforcedBy.locks, EnforcedBy.guest
_FEWER: Final = Narrowing("fewer entries", _fewer)
_FEWER_IN_GUEST: Final = Narrowing("fewer entries", _fewer, _GUEST)
_LOWER: Final = Narrowing("a lower number", _lower)
_LOWER_BY_LOCKS: Final = Narrowing("a lower number", _lower, _LOCKS)
_LOWER_IN_GUEST: Final = Narrowing("a lower number", _lower, _GUEST)


#: Every field, in the model's order.
TABLE: Final[dict[str, Narrowing]] = {
    "name": _never("it is what messages call the operator's policy"),
    "mode": Narrowing(
        "`confined` or `safe`, in this order", _towards("unsafe", "confined", "safe"), _GUEST
    ),
    "backend": _never(_OPERATORS),
    "on_unsupported": Narrowing("`error`, or `warn`", _towards("ignore", "warn", "error")),
    "require": Narrowing("more entries", _more, adds=True),
    "container_engine": _never(_OPERATORS),
    "container_runtime": _never(_OPERATORS),
    "container_image": _never(_OPERATORS),
    "admission": _never(_ADMITTED),
    "approval": _never(_ADMITTED),
    "approvals": _never(_ASKED),
    "templates": _never(_ADMITTED),
    "audit": _never("the audit log is the operator's: it is about cells, and not theirs"),
    "allowed_modules": _FEWER_IN_GUEST,
    "magics": _FEWER_IN_GUEST,
    "preload": _never(_LOADED),
    "preload_when_idle": _never(_LOADED),
    "pre_imported": _never(_LOADED),
    "tools": _FEWER_IN_GUEST,
    "mcp": _never(_GRANTED),
    "tool_timeout": _LOWER,
    "tool_timeouts": Narrowing("lower numbers", _tool_timeouts),
    "tool_max_calls": _LOWER,
    "tool_max_in_flight": _LOWER_IN_GUEST,
    "tool_max_bytes": _LOWER_IN_GUEST,
    "llm": _never(_GRANTED),
    "ops": _never(_GRANTED),
    "packages": _never("they are there before the first cell, and allow nothing by themselves"),
    "artifact_export_paths": _never(_COPIED),
    "artifact_folder": _never(_COPIED),
    # What is writable is readable.
    "filesystem_read_roots": Narrowing(
        "paths beneath those that can be read or written",
        _beneath("filesystem_read_roots", "filesystem_write_roots"),
        _LOCKS,
    ),
    "filesystem_write_roots": Narrowing(
        "paths beneath those that can be written", _beneath("filesystem_write_roots"), _LOCKS
    ),
    "filesystem_staged_roots": Narrowing(
        "paths beneath those that are staged", _beneath("filesystem_staged_roots"), _LOCKS
    ),
    "read_deny_paths": Narrowing("more paths, or folders around them", _denied, _LOCKS, adds=True),
    "network_access": Narrowing(
        "false, or fewer addresses (a list instead of `true`: a new guest)",
        _network,
        _LOCKS,
        # A guest that may connect itself can't ask for addresses that are listed.
        takes_new_guest=lambda old, new: (
            old.network_access is True and new.network_access not in (True, False, ())
        ),
    ),
    "subprocess_execution": Narrowing("false", _off, _LOCKS),
    "package_installation": Narrowing("false", _off),
    "env_var_access": _FEWER_IN_GUEST,
    "display": Narrowing(
        "`sanitized` or `text`, in this order", _towards("isolated", "sanitized", "text")
    ),
    "widget_modules": _FEWER,
    "comm_targets": _FEWER,
    "snapshots": _never("snapshots keep your variables, and no cell is to take that away"),
    "undo_depth": _LOWER,
    "max_branches": _LOWER,
    "timeout": _LOWER,
    "idle_timeout": _LOWER,
    "cpu_seconds": _LOWER,
    "memory_max_bytes": _LOWER_BY_LOCKS,
    "max_processes": _LOWER_BY_LOCKS,
    "max_open_files": _LOWER_BY_LOCKS,
    "max_file_size": _LOWER_BY_LOCKS,
    "scratch_max_bytes": _LOWER,
    "stdout_max_bytes": _LOWER,
    "stderr_max_bytes": _LOWER,
    "display_max_bytes": _LOWER,
    "undo_max_bytes": _LOWER,
    "forks_max_bytes": _LOWER,
    "output_kept_max_bytes": _LOWER,
    "artifact_max_bytes": _never(_COPIED),
    "artifacts_max_bytes": _never(_COPIED),
}


# --- narrowing ----------------------------------------------------------------------------------

#: In changes, as in a file: what is added to a list, where that allows less.
ADD: Final = "add"
#: Entries of a list: each path among them is looked up.
MAX_ENTRIES: Final = 1_000
_SCRATCH: Final = "{scratch}"
#: What counts where the source of cells is judged.
_JUDGED: Final = frozenset({"allowed_modules", "magics"})
_REMEDY: Final = "Only the operator can allow more, in the policy of the kernel."


def narrow(policy: Policy, changes: Mapping[str, Any], *, places: Places) -> Policy:
    """Return ``policy`` with ``changes``: field to value, as a file has them, ``[add]`` as well.

    A relative path is relative to ``places.folder``. Entries of ``tool_timeouts`` that are not
    named stay. Raises PolicyError for the first thing wrong, WideningError for what would allow
    more, or is not for cells and notebooks to change.
    """
    narrowed, wrong = try_narrow(policy, changes, places=places)
    if wrong:
        raise wrong[0]
    return narrowed


def try_narrow(
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
        elif key in _JUDGED and narrowed.mode != "safe" and values[key] != getattr(policy, key):
            why = f"has no effect in mode {narrowed.mode}, which refuses no cell for its source"
            remedy = 'Narrow the mode as well: mode="safe".'
            wrong[key] = _mistake(why, key, values[key], remedy, places)
    if not wrong:
        known, values = policy.allowed_modules, narrowed.as_dict()
        try:
            from_fields(values, file=places.file, known_modules=known, here=places.here)
        except PolicyError as error:
            wrong[error.key] = error
    return (policy if wrong else narrowed), tuple(wrong.values())


def changed_fields(old: Policy, new: Policy) -> tuple[str, ...]:
    """Return the fields in which two policies differ, in the model's order."""
    return tuple(key for key in FIELDS if getattr(old, key) != getattr(new, key))


def check_narrower(old: Policy, new: Policy, *, file: str) -> None:
    """Raise WideningError where a policy that came from elsewhere allows more than ``old``."""
    for key in FIELDS:
        if why := _wider(key, old, new):
            raise WideningError(why, file=file, key=key, remedy=_REMEDY)


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
    if isinstance(value, list | tuple) and len(value) > MAX_ENTRIES:
        raise _mistake(f"more than {MAX_ENTRIES:,} entries", key, "", "Name folders.", places)
    if field != key:
        if not TABLE[field].adds:
            raise _widening(key, value, "what is added to it is allowed", places)
        if not isinstance(value, list | tuple):
            raise _mistake("can't be added", key, value, "Give a list.", places)
        value = [*getattr(policy, field), *value]
    elif field == "tool_timeouts" and isinstance(value, Mapping):
        value = policy.tool_timeouts | dict(value)
    parsed = getattr(from_fields(policy.as_dict() | {field: value}, file=places.file), field)
    return {field: _expanded(policy, field, parsed, places) if field in PATHS else parsed}


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


def _mistake(message: str, key: str, value: Any, remedy: str, places: Places) -> PolicyError:
    shown = toml_text(value) if value != "" else ""
    return PolicyError(message, file=places.file, key=key, value=shown, remedy=remedy)


def _widening(key: str, value: Any, why: str, places: Places) -> WideningError:
    return WideningError(why, file=places.file, key=key, value=toml_text(value), remedy=_REMEDY)
