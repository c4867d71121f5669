"""Cards for a cell that was stopped, or undone: why, and what became of the variables."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from cellblock.render import cards as c
from cellblock.render.cards import OUTCOME_JSON, Bundle, Failure
from cellblock.render.text import encodable, visible, wrap

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
        data=data | {"notes": lines[1:], "lost": lost},
    )
