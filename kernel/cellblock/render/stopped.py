"""Cards for a cell that was stopped, or undone: why, and what became of the variables.

And for what the OS layer refused a cell that ran, with the words that go with its exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from cellblock.render import cards as c
from cellblock.render.cards import OUTCOME_JSON, REFUSAL_JSON, Bundle, Failure
from cellblock.render.text import clip, encodable, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence


class Reason(StrEnum):
    """Why a cell was stopped."""

    breach = "breach"
    cpu = "cpu"
    crashed = "crashed"
    files = "files"
    flood = "flood"
    interrupted = "interrupted"
    killed = "killed"
    lost = "lost"
    memory = "memory"
    protocol = "protocol"
    scratch = "scratch"
    timeout = "timeout"


#: Why, in words: ``{limit}`` is the limit, or what is known of the cause.
_WORDS: Final = {
    Reason.breach: "it got around the language layer; refused: {limit}",
    Reason.cpu: "it used more than {limit} of processor time (cpu_seconds)",
    Reason.crashed: "its interpreter crashed ({limit})",
    Reason.files: "it left more than {limit} in the project, which are staged",
    Reason.flood: "it sent more output than the kernel takes ({limit})",
    Reason.interrupted: "you interrupted it twice and it did not end",
    Reason.killed: "its process was killed ({limit})",
    Reason.lost: "its interpreter ended without a reply ({limit})",
    Reason.memory: "it used more than {limit} of memory (memory_max_bytes)",
    Reason.protocol: "its interpreter broke the kernel's protocol ({limit})",
    Reason.scratch: "it kept more than {limit} in the scratch folder (scratch_max_bytes)",
    Reason.timeout: "it ran longer than {limit} (timeout)",
}
#: The policy's field that is the limit.
_SETTINGS: Final = {
    Reason.cpu: "cpu_seconds",
    Reason.memory: "memory_max_bytes",
    Reason.scratch: "scratch_max_bytes",
    Reason.timeout: "timeout",
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
    """Return an operation's name with what it is about, for the reader of the card."""
    about = next((what for begins, what in _OPERATIONS if name.startswith(begins)), "")
    shown = encodable(name)[:60]
    return f"{shown} ({about})" if about else shown


class State(StrEnum):
    """What became of the variables."""

    gone = "gone"  # the interpreter was restarted
    kept = "kept"  # the interpreter lives on; the cell was interrupted
    restored = "restored"  # a snapshot took over


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
    beside: bool = False,
) -> Bundle:
    """Return the card for a stopped cell.

    ``limit`` is the limit reached ("60 s") or the cause known ("signal 11"); it may be empty.
    ``lost`` names what the restored snapshot lacks. ``own`` says that the limit came with the
    cell, not from the policy; ``beside`` that it is the end of another that ran at the same time.
    """
    reason = Reason(reason)
    lines = [
        f"The cell was stopped{_sentence(reason, limit, beside=beside)}.",
        _STATES[state] + _lost(lost),
    ]
    if reason in {Reason.files, Reason.scratch}:
        anew = "%changes drop and restart" if reason is Reason.files else "restart"
        lines.append(f"Its files are still there: remove some in a cell, or {anew} the kernel.")
    if own:
        lines.append("To raise it: timeout where the cell is run, up to timeout in the policy.")
    elif setting := _SETTINGS.get(reason):
        lines.append(f"To raise it, set {setting} in a policy file. %policy shows what is set now.")
    data: dict[str, Any] = {
        "outcome": "stopped",
        "reason": reason,
        "limit": limit,
        "state": state,
    }
    if beside:
        data["beside"] = True
    return _card(lines, state, data, lost)


def stopped_failure(card: Bundle) -> Failure:
    """Return the error that goes with a card of ``stopped``."""
    data = card[OUTCOME_JSON]
    beside = data.get("beside", False)
    sentence = _sentence(Reason(data["reason"]), data["limit"], beside=beside)
    return Failure("CellStopped", sentence.removeprefix(": ").strip(), card["text/plain"])


def undone(counts: Sequence[int], *, lost: Sequence[str] = ()) -> Bundle:
    """Return the card for ``%undo``; ``counts`` are the numbers of the cells that were undone."""
    cells = ", ".join(f"[{count}]" for count in counts)
    variables = f"Your variables are as they were before {f'[{counts[0]}]' if counts else 'it'}."
    lines = [f"Undone: {cells}.", variables + _lost(lost), "Files and output stay as they are."]
    return _card(lines, State.restored, {"outcome": "undone", "cells": counts}, lost)


def restored(name: str, *, lost: Sequence[str] = ()) -> Bundle:
    """Return the card for ``%restore``."""
    lines = [
        f"Back at checkpoint {name}.",
        "Your variables are as they were there." + _lost(lost),
        "Files and output stay as they are.",
    ]
    return _card(lines, State.restored, {"outcome": "restored", "checkpoint": name}, lost)


def _sentence(reason: Reason, limit: str, *, beside: bool) -> str:
    """Return why, to go on with "was stopped"."""
    sentence = _WORDS[reason]
    if limit:
        sentence = sentence.format(limit=visible(limit))
    else:
        sentence = sentence.replace(" ({limit})", "").replace("{limit}", "its limit")
    return f" with one that ran beside it, of which: {sentence}" if beside else f": {sentence}"


def _lost(lost: Sequence[str]) -> str:
    return f" Not restored: {', '.join(lost)}." if lost else ""


def _card(lines: Sequence[str], state: State, data: dict[str, Any], lost: Sequence[str]) -> Bundle:
    title, variables, *advice = lines
    gone = state is State.gone
    return c.make_card(
        title,
        c.paragraph(c.element("strong", variables) if gone else variables),
        *(c.paragraph(line, color=c.MUTED) for line in advice),
        lines=[part for line in lines for part in wrap(line)],
        symbol="■",
        color=c.RED if gone else c.AMBER,
        mime=OUTCOME_JSON,
        data=data | {"lost": lost},
    )


_MAX_PART: Final = 300
_PRESETS: Final = frozenset({"safe", "data", "unsafe"})


@dataclass(frozen=True, slots=True)
class Remedy:
    """The line that allows it, if one does, and what to do without.

    ``listed`` says that the line adds to a list.
    """

    line: str = ""
    listed: bool = False
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a cell was refused: the policy's field, why, and what it had asked for.

    ``advice`` is what the source check says of a place in the cell that leads there, and
    ``rewrite`` a line or two that do the same with an operation of the host's.
    """

    field: str
    what: str
    remedy: Remedy = Remedy()
    asked: str = ""
    advice: str = ""
    rewrite: str = ""


def refusal_reason(refusal: Refusal, policy_name: str) -> str:
    """Return the reason in words, with what was asked for and the policy's field."""
    about = ", ".join(filter(None, (_part(refusal.asked), refusal.field)))
    return f"under policy {_part(policy_name)} {refusal.what} ({about})"


def lines_to_write(refusal: Refusal, file: str) -> list[str]:
    """Return the lines of a policy's file that allow it: a preset needs a file that extends it."""
    remedy, lines = refusal.remedy, list[str]()
    if not remedy.line:
        return lines
    if file in _PRESETS:
        lines.append(f'extends = "{file}"')
    # As the source check writes it: a file can't have both that and a table [add].
    return [*lines, f"{'add.' * remedy.listed}{_part(remedy.line)}"]


def refusal_sentence(refusal: Refusal, policy_name: str, file: str) -> str:
    """Return reason and remedy for those who see nothing but an exception's message."""
    lines, remedy = lines_to_write(refusal, file), _part(refusal.remedy.instead)
    if lines:
        instead = f" ({remedy})" if remedy else ""
        remedy = f"To allow it, {_where(file)}: {'; '.join(lines)}{instead}"
    elif remedy:
        remedy = f"{remedy[:1].upper()}{remedy[1:]}."
    return f"cellblock: {refusal_reason(refusal, policy_name)}. {remedy}".rstrip()


def _where(file: str) -> str:
    if file in _PRESETS or not file:
        return "in a policy file of your own (cellblock install --policy FILE)"
    return f"in {_part(file)}"


def refusal_card(refusal: Refusal, policy_name: str, file: str) -> Bundle:
    """Return the card that is shown below the traceback."""
    title = f"cellblock stopped this: under policy {_part(policy_name)} {refusal.what}"
    lines, body = wrap(title), list[str]()
    if refusal.asked:
        asked = f"It asked for {_part(refusal.asked)}."
        lines += wrap(asked, indent="  ")
        body.append(c.paragraph("It asked for ", c.code(_part(refusal.asked)), "."))
    if refusal.advice:
        advice = f"In this cell, {_part(refusal.advice)}{'. Instead:' if refusal.rewrite else '.'}"
        lines += wrap(advice, indent="  ")
        body.append(c.paragraph(advice))
    if refusal.rewrite:
        rewrite = [_part(line) for line in refusal.rewrite.splitlines()]
        lines += (f"    {line}" for line in rewrite)
        body.append(c.preformatted("\n".join(rewrite), style="margin:4px 0 0 16px"))
    wanted, instead = lines_to_write(refusal, file), _part(refusal.remedy.instead)
    if wanted:
        allow = f"To allow it, write {_where(file)}, and restart the kernel:"
        lines += [*wrap(allow, indent="  "), *(f"    {line}" for line in wanted)]
        body += [c.paragraph(allow), c.preformatted("\n".join(wanted), style="margin:4px 0 0 16px")]
    if instead:
        said = f"{'Or ' if wanted else ''}{instead}."
        said = f"{said[:1].upper()}{said[1:]}"
        lines += wrap(said, indent="  ")
        body.append(c.paragraph(said, color=c.MUTED))
    return c.make_card(
        title,
        *body,
        lines=lines,
        symbol="⊘",
        color=c.AMBER,
        side=c.policy_chip(policy_name),
        mime=REFUSAL_JSON,
        data={
            "policy": policy_name,
            "field": refusal.field,
            "what": refusal.what,
            "asked": refusal.asked,
            "advice": refusal.advice,
            "write": wanted,
            "instead": instead,
        },
    )


def _part(text: str) -> str:
    return clip(visible(text), _MAX_PART)
