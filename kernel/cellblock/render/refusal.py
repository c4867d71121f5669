"""What the OS layer refused a cell that ran: a card, and the words that go with the exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cellblock.render import cards as c
from cellblock.render.cards import REFUSAL_JSON, Bundle
from cellblock.render.text import clip, visible, wrap

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


def why(refusal: Refusal, policy_name: str) -> str:
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


def in_a_line(refusal: Refusal, policy_name: str, file: str) -> str:
    """Return reason and remedy for those who see nothing but an exception's message."""
    lines, remedy = lines_to_write(refusal, file), _part(refusal.remedy.instead)
    if lines:
        instead = f" ({remedy})" if remedy else ""
        remedy = f"To allow it, {_where(file)}: {'; '.join(lines)}{instead}"
    elif remedy:
        remedy = f"{remedy[:1].upper()}{remedy[1:]}."
    return f"cellblock: {why(refusal, policy_name)}. {remedy}".rstrip()


def _where(file: str) -> str:
    if file in _PRESETS or not file:
        return "in a policy file of your own (cellblock install --policy FILE)"
    return f"in {_part(file)}"


def card(refusal: Refusal, policy_name: str, file: str) -> Bundle:
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
            "rewrite": refusal.rewrite,
            "write": wanted,
            "instead": instead,
        },
    )


def _part(text: str) -> str:
    return clip(visible(text), _MAX_PART)
