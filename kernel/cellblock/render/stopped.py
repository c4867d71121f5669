"""The card for a cell that was ended from outside: why, and what became of the variables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.render import cards as m
from cellblock.render.cards import (
    ENFORCEMENT_JSON,
    JSON_VERSION,
    NARROWING_JSON,
    OUTCOME_JSON,
    Bundle,
    Failure,
    asked,
    badge,
    capability_words,
)
from cellblock.render.text import COLUMNS, clip, encodable, visible, width, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.policy.enforcement import Gap


class Reason(StrEnum):
    """Why a cell did not end by itself."""

    breach = "breach"
    cpu = "cpu"
    crashed = "crashed"
    flood = "flood"
    interrupted = "interrupted"
    killed = "killed"
    lost = "lost"
    memory = "memory"
    protocol = "protocol"
    scratch = "scratch"
    timeout = "timeout"


class _Words(NamedTuple):
    sentence: str
    setting: str = ""


_WORDS: Final = {
    Reason.breach: _Words("it got around the language layer; refused: {limit}"),
    Reason.cpu: _Words("it used more than {limit} of processor time (cpu_seconds)", "cpu_seconds"),
    Reason.crashed: _Words("its interpreter crashed ({limit})"),
    Reason.flood: _Words("it sent more output than the kernel takes ({limit})"),
    Reason.interrupted: _Words("you interrupted it twice and it did not end"),
    Reason.killed: _Words("its process was killed ({limit})"),
    Reason.lost: _Words("its interpreter ended without a reply ({limit})"),
    Reason.memory: _Words(
        "it used more than {limit} of memory (memory_max_bytes)", "memory_max_bytes"
    ),
    Reason.protocol: _Words("its interpreter broke the kernel's protocol ({limit})"),
    Reason.scratch: _Words(
        "it kept more than {limit} in the scratch folder (scratch_max_bytes)", "scratch_max_bytes"
    ),
    Reason.timeout: _Words("it ran longer than {limit} (timeout)", "timeout"),
}


#: How the names of operations begin (PEP 578), and what they are about.
_OPERATIONS: Final = (
    (("open", "os.listdir", "os.scandir", "shutil.", "glob.", "tempfile.", "mmap."), "files"),
    (("subprocess.", "os.exec", "os.posix_spawn", "os.fork", "os.system", "os.kill", "signal."),
     "processes"),
    (("socket.", "urllib.", "http.", "smtplib.", "ftplib."), "the network"),
    (("ctypes.", "import"), "native code and modules that are not allowed"),
    (("code.", "function.", "compile", "exec", "object.", "gc.", "sys.", "marshal.", "pickle."),
     "the interpreter itself"),
    (("os.",), "files"),
)  # fmt: skip


def operation(name: str) -> str:
    """Return the name of an operation with what it is about, for whoever reads the card."""
    about = next((what for begins, what in _OPERATIONS if name.startswith(begins)), "")
    shown = encodable(name)[:60]
    return f"{shown} ({about})" if about else shown


class State(StrEnum):
    """What became of the variables."""

    gone = "gone"
    """The interpreter was restarted."""

    kept = "kept"
    """The interpreter lives on; the cell was interrupted."""

    restored = "restored"
    """A snapshot took over."""


_STATES: Final = {
    State.gone: "Your variables are gone: the interpreter was restarted. Run your cells again.",
    State.kept: "It was interrupted: your variables are there, with what it did until then.",
    State.restored: "Your variables are as they were before it.",
}


def stopped(
    reason: Reason | str,
    limit: str = "",
    *,
    state: State,
    lost: Sequence[str] = (),
    own: bool = False,
) -> Bundle:
    """Return the card for a stopped cell.

    ``limit`` is the limit reached ("60 s") or the cause known ("signal 11"); it may be empty.
    ``lost`` names what a snapshot that took over does not have. ``own`` says that the limit came
    with the cell, not from the policy.
    """
    reason = Reason(reason)
    lines = _lines(reason, limit, state=state, lost=lost, own=own)
    return {
        "text/plain": _plain(lines),
        "text/html": _html(lines, state=state),
        OUTCOME_JSON: {
            "version": JSON_VERSION,
            "outcome": "stopped",
            "reason": str(reason),
            "limit": encodable(limit),
            "state": str(state),
            "lost": [encodable(item) for item in lost],
        },
    }


def stopped_failure(
    reason: Reason | str,
    limit: str = "",
    *,
    state: State,
    lost: Sequence[str] = (),
    own: bool = False,
) -> Failure:
    """Return the error that goes with the card ``stopped`` makes of the same arguments."""
    reason = Reason(reason)
    lines = _lines(reason, limit, state=state, lost=lost, own=own)
    return Failure("CellStopped", _sentence(reason, limit), _plain(lines))


def undone(counts: Sequence[int], *, lost: Sequence[str] = ()) -> Bundle:
    """Return the card for ``%undo``: the cells that were stepped back over, by number."""
    cells = ", ".join(f"[{count}]" for count in counts)
    variables = f"Your variables are as they were before {f'[{counts[0]}]' if counts else 'it'}."
    if lost:
        variables += f" Not restored: {', '.join(lost)}."
    lines = [f"Undone: {cells}.", variables, "Files and output stay as they are."]
    return {
        "text/plain": _plain(lines),
        "text/html": _html(lines, state=State.restored),
        OUTCOME_JSON: {
            "version": JSON_VERSION,
            "outcome": "undone",
            "cells": list(counts),
            "lost": [encodable(item) for item in lost],
        },
    }


def _sentence(reason: Reason, limit: str) -> str:
    sentence = _WORDS[reason].sentence
    if limit:
        return sentence.format(limit=visible(limit))
    return sentence.replace(" ({limit})", "").replace("{limit}", "its limit")


def _lines(
    reason: Reason, limit: str, *, state: State, lost: Sequence[str], own: bool
) -> list[str]:
    variables = _STATES[state]
    if lost:
        variables += f" Not restored: {', '.join(lost)}."
    lines = [f"The cell was stopped: {_sentence(reason, limit)}.", variables]
    if reason is Reason.scratch:
        lines.append("Its files are still there: remove some in a cell, or restart the kernel.")
    if own:
        lines.append("Raise it: timeout where the cell is run, up to timeout in the policy.")
    elif setting := _WORDS[reason].setting:
        lines.append(f"Raise it: {setting} in the policy, or %policy for what is set now.")
    return lines


def _plain(lines: Sequence[str]) -> str:
    return "\n".join(part for line in lines for part in wrap(line, columns=COLUMNS))


def _html(lines: Sequence[str], *, state: State) -> m.Html:
    title, variables, *advice = lines
    gone = state is State.gone
    color = m.RED if gone else m.AMBER
    body = [m.paragraph(m.element("strong", variables) if gone else variables)]
    body += [m.paragraph(line, color=m.MUTED) for line in advice]
    return m.card(title, *body, symbol="■", color=color, label=title)


# The card for what the policy asks and this machine does not enforce.

TITLE = "Not everything in this policy is enforced on this machine"
#: Said in place of the title under a backend that enforces nothing, gaps or not.
AUDIT_ONLY = "Audit only: nothing of this policy is enforced by the operating system"
NO_GAPS = "Everything in this policy is enforced on this machine"
_STATUS_COLUMNS = 11
_GAPS_NAME_COLUMNS = 28


def audit_only(backend: object) -> bool:
    """Return whether ``backend`` is the one that looks and holds nothing."""
    return backend == "noop"


def gaps(gaps: Sequence[Gap], *, policy_name: str, backend: str) -> Bundle:
    """Return the enforcement card: one row per gap, with its consequence and remedy."""
    return {
        "text/plain": plain(gaps, backend),
        "text/html": _gaps_html(gaps, policy_name, backend),
        ENFORCEMENT_JSON: {
            "version": JSON_VERSION,
            "policy": encodable(policy_name),
            "backend": encodable(backend),
            "gaps": [gap_json(gap) for gap in gaps],
        },
    }


def gap_json(gap: Gap) -> dict[str, Any]:
    """Return a gap as JSON data."""
    return {
        "capability": encodable(gap.capability),
        "status": str(gap.status),
        "asked": encodable(gap.asked),
        "actual": encodable(gap.actual),
        "consequence": encodable(gap.consequence),
        "remedy": encodable(gap.remedy),
    }


def line(gap: Gap) -> str:
    """Return a gap as one line of a log."""
    what = f"gap: {capability_words(gap.capability)} is {gap.status}"
    said = f"{what}: {_asked(gap)}; {gap.consequence}; remedy: {gap.remedy}"
    return visible(said).replace("\n", " ")


def _asked(gap: Gap) -> str:
    return f"asked: {gap.asked}; here: {gap.actual}"


def _title(gaps: Sequence[Gap], backend: str) -> str:
    if audit_only(backend):
        return AUDIT_ONLY
    return TITLE if gaps else NO_GAPS


def plain(gaps: Sequence[Gap], backend: str = "") -> str:
    """Return the card for a terminal, 80 columns wide."""
    title = f"{'✗ ' if audit_only(backend) else ''}{_title(gaps, backend)}"
    if not gaps:
        return title
    names = [clip(visible(capability_words(g.capability)), _GAPS_NAME_COLUMNS) for g in gaps]
    column = max(map(width, names))
    lines = wrap(title, columns=COLUMNS)
    for gap, name in zip(gaps, names, strict=True):
        indent = f"  {name}{' ' * (column - width(name))}   {gap.status:<{_STATUS_COLUMNS}}  "
        hanging = " " * width(indent)
        lines += wrap(gap.consequence, indent=indent, hanging=hanging, columns=COLUMNS)
        if gap.remedy:
            arrow = hanging + "→ "
            lines += wrap(gap.remedy, indent=arrow, hanging=hanging + "  ", columns=COLUMNS)
    return "\n".join(lines)


def _gaps_html(gaps: Sequence[Gap], policy_name: str, backend: str) -> m.Html:
    title = _title(gaps, backend)
    symbol, color = ("◐", m.AMBER) if gaps else ("✓", m.GREEN)
    if audit_only(backend):
        symbol, color = "✗", m.RED
    side = m.chips(("policy", clip(policy_name, 40)), ("backend", backend))
    rows = [_row(gap) for gap in gaps]
    return m.card(title, *rows, symbol=symbol, color=color, label=title, side=side)


def _row(gap: Gap) -> m.Html:
    """Return a gap: what it means first, what was asked and what is there, what closes it."""
    name = m.element("span", capability_words(gap.capability), style="font-weight:600")
    head = m.heading(name, " · ", badge(gap.status), level=4)
    shown = [m.paragraph(gap.consequence, tight=True)]
    shown.append(m.paragraph(_asked(gap), color=m.MUTED, tight=True))
    if gap.remedy:
        shown.append(m.paragraph("→ ", gap.remedy, color=m.MUTED, tight=True))
    return m.element("div", head, *shown, style="margin-top:8px")


# The card for a policy that has become narrower: what is left, since when, and what is not yet.

_NOTHING: Final = "Nothing changes: the policy is as narrow as that already"
_TITLE: Final = "The policy is narrower from the next cell on"
_FOR_GOOD: Final = "It stays so until the kernel is restarted."
_NAME_COLUMNS: Final = 24


class Guest(StrEnum):
    """Where cells run from now on, and what became of their variables."""

    same = "same"
    """Where they did: nothing that a guest is made of changed."""

    new = "new"
    """In a new guest, before anything had run."""

    kept = "kept"
    """In a copy of the guest that has more locks, with the variables that there were."""

    instead = "instead"
    """In a new guest, in place of one with variables."""


_GUESTS: Final = {
    Guest.same: "",
    Guest.new: "",
    Guest.kept: "Your variables are there: a copy of the guest goes on, under more locks.",
    Guest.instead: "Your variables are gone: a new guest runs, which never had more than this.",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A field that changed, its value before, and its value now."""

    field: str
    before: object
    after: object

    @property
    def words(self) -> str:
        """What became of it."""
        before, after = self.before, self.after
        if isinstance(before, tuple) and isinstance(after, tuple) and after:
            gone = [entry for entry in before if entry not in after]
            more = [entry for entry in after if entry not in before]
            if gone and not more:
                return f"without {asked(self.field, gone)}"
            if more and not gone:
                return f"also {asked(self.field, more)}"
        return f"{asked(self.field, before)} → {asked(self.field, after)}"


def narrowed(
    rows: Sequence[Row],
    *,
    policy_name: str,
    guest: Guest,
    lost: Sequence[str] = (),
    gaps: Sequence[Gap] = (),
) -> Bundle:
    """Return the card; ``gaps`` are what this machine, or this guest, does not enforce of it.

    ``lost`` names what the copy of a guest does not have.
    """
    title = _TITLE if rows else _NOTHING
    state = _GUESTS[guest] + (f" Not with it: {', '.join(lost)}." if lost else "")
    notes = [note for note in (state, _FOR_GOOD if rows else "") if note]
    return {
        "text/plain": _narrowed_plain(title, rows, notes, gaps),
        "text/html": _narrowed_html(title, rows, notes, gaps, policy_name),
        NARROWING_JSON: {
            "version": JSON_VERSION,
            "policy": encodable(policy_name),
            "guest": str(guest),
            "lost": [encodable(item) for item in lost],
            "changes": [_json(row) for row in rows],
            "gaps": [gap_json(gap) for gap in gaps],
        },
    }


def _json(row: Row) -> dict[str, str]:
    return {
        "field": encodable(row.field),
        "before": encodable(asked(row.field, row.before)),
        "after": encodable(asked(row.field, row.after)),
    }


def _warning(gap: Gap) -> str:
    return f"{capability_words(gap.capability)}: {gap.consequence} → {gap.remedy}"


def _narrowed_plain(
    title: str, rows: Sequence[Row], notes: Sequence[str], gaps: Sequence[Gap]
) -> str:
    lines = wrap(title, columns=COLUMNS)
    for row in rows:
        name = clip(visible(capability_words(row.field)), _NAME_COLUMNS)
        indent = f"  {name}{' ' * (_NAME_COLUMNS - width(name))} "
        hanging = " " * width(indent)
        lines += wrap(row.words, indent=indent, hanging=hanging, columns=COLUMNS)
    for note in notes:
        lines += wrap(note, columns=COLUMNS)
    for gap in gaps:
        lines += wrap(_warning(gap), indent="! ", hanging="  ", columns=COLUMNS)
    return "\n".join(lines)


def _narrowed_html(
    title: str, rows: Sequence[Row], notes: Sequence[str], gaps: Sequence[Gap], policy_name: str
) -> m.Html:
    body = [
        m.paragraph(m.element("b", capability_words(row.field)), f": {row.words}", tight=True)
        for row in rows
    ]
    body += [m.paragraph(note, color=m.MUTED) for note in notes]
    body += [m.paragraph(f"! {_warning(gap)}", tight=True) for gap in gaps]
    symbol, color = ("◐", m.AMBER) if gaps else ("✓", m.GREEN)
    side = m.chip("policy", clip(visible(policy_name), 40))
    return m.card(title, *body, symbol=symbol, color=color, label=title, side=side)
