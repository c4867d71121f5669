"""The card for files that a cell left: links to the copies, and what was not copied."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from cellblock.render import cards as m
from cellblock.render.cards import ARTIFACTS_JSON, JSON_VERSION, Bundle, count, size
from cellblock.render.text import (
    COLUMNS,
    HOSTS_MARK,
    clip,
    encodable,
    exact,
    pieces,
    visible,
    width,
    wrap,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_NAME_COLUMNS: Final = 60
_SHOWN: Final = 50


class File(NamedTuple):
    """A file that was copied: where it is, relative to the notebook if it lies beneath it."""

    name: str
    path: str
    size_bytes: int
    content_type: str
    #: Whether ``path`` is relative, so that a front end can follow it.
    linked: bool


class Left(NamedTuple):
    """A file that was not copied, and why."""

    name: str
    why: str


def artifacts(files: Sequence[File], left: Sequence[Left], *, uncounted: bool = False) -> Bundle:
    """Return the card. ``uncounted`` says that there are more files than are looked at."""
    title = f"{count(len(files), 'file')} copied out" if files else "No file was copied out"
    notes = [*(f"Not copied: {visible(one.name)}: {one.why}" for one in left[:_SHOWN])]
    if len(left) > _SHOWN:
        notes.append(f"Not copied: {len(left) - _SHOWN:,} more")
    if uncounted:
        notes.append("There are more files than are looked at: write fewer, or name them closer.")
    return {
        "text/plain": "\n".join([title, *_plain(files), *(f"  {note}" for note in notes)]),
        "text/html": _html(title, files, notes),
        ARTIFACTS_JSON: {
            "version": JSON_VERSION,
            "artifacts": [
                {
                    "name": encodable(one.name),
                    "path": encodable(one.path),
                    "size_bytes": one.size_bytes,
                    "content_type": one.content_type,
                }
                for one in files
            ],
            "not_copied": [{"name": encodable(one.name), "why": one.why} for one in left],
            "uncounted": uncounted,
        },
    }


def _plain(files: Sequence[File]) -> list[str]:
    paths = [clip(visible(one.path), _NAME_COLUMNS) for one in files[:_SHOWN]]
    column = max(map(width, paths), default=0)
    lines = [
        f"  {path}{' ' * (column - width(path))}  {size(one.size_bytes)}  {one.content_type}"
        for path, one in zip(paths, files, strict=False)
    ]
    return [*lines, f"  and {len(files) - _SHOWN:,} more"] if len(files) > _SHOWN else lines


def _html(title: str, files: Sequence[File], notes: Sequence[str]) -> m.Html:
    rows = [_row(one) for one in files[:_SHOWN]]
    if len(files) > _SHOWN:
        rows.append(m.paragraph(f"and {len(files) - _SHOWN:,} more", color=m.MUTED, tight=True))
    rows += [m.paragraph(note, color=m.MUTED) for note in notes]
    color = m.AMBER if notes else m.GREEN
    return m.card(title, *rows, symbol="↧", color=color, label=title)


def _row(file: File) -> m.Html:
    name = clip(visible(file.path), _NAME_COLUMNS)
    # "./": whatever it is called, it is no address of another scheme.
    shown = m.element("a", name, href=f"./{quote(file.path)}") if file.linked else m.code(name)
    told = m.element(
        "span",
        f" · {size(file.size_bytes)} · {file.content_type}",
        style=f"color:{m.MUTED}",
    )
    return m.paragraph(shown, told, tight=True)


# Cards about comms: a widget that was not shown, a comm that was not opened, what was left out.

COMM_JSON: Final = "application/vnd.cellblock.comm+json"
_LONGEST: Final = 100
_RIGHTS: Final = "it would run in the page, with all that you may do there."


def widget(module: str, model: str, *, policy_name: str, known: bool) -> Bundle:
    """Return the card for a widget whose model is not let in.

    ``known`` says that its module is let in and only the model is not known.
    """
    module, model = clip(module or "(none)", _LONGEST), clip(model or "(none)", _LONGEST)
    title = f"cellblock did not show a widget of {module}"
    if known:
        why = f"{model} is none of the widgets of {module} that cellblock knows how to clean."
        remedy = "use one of ipywidgets' own, or show the value itself."
    else:
        why = f"{model} brings a script of its own: {_RIGHTS}"
        remedy = (
            f'use one of ipywidgets\' own, or a picture; or let the operator add "{module}" to '
            "widget_modules in the policy."
        )
    return _card(title, why, remedy, policy_name, {"module": module, "model": model})


def comm(target: str, *, policy_name: str) -> Bundle:
    """Return the card for a comm whose target is not let in."""
    target = clip(target or "(none)", _LONGEST)
    title = f"cellblock did not open a comm to {target}"
    why = f"An extension of the front end listens there: what it is told to do, {_RIGHTS}"
    remedy = f'let the operator add "{target}" to comm_targets in the policy.'
    return _card(title, why, remedy, policy_name, {"target": target})


def left_out(parts: Sequence[tuple[str, str, str]], *, policy_name: str) -> Bundle:
    """Return the card for parts of widgets that were left out: model, key, why."""
    title = f"cellblock left out {count(len(parts), 'part')} of the widgets above"
    rows = [(clip(f"{model}.{key}", 60), clip(why, _LONGEST)) for model, key, why in parts]
    lines = wrap(title, columns=COLUMNS)
    for name, why in rows:
        lines += wrap(f"{name}: {why}", indent="  ", hanging="    ", columns=COLUMNS)
    body = [m.paragraph(m.code(name), " ", why, tight=True) for name, why in rows]
    side = m.chips(("policy", clip(policy_name, 40)))
    return {
        "text/plain": "\n".join(lines),
        "text/html": m.card(title, *body, symbol="◐", color=m.AMBER, label=title, side=side),
        COMM_JSON: {
            "version": JSON_VERSION,
            "outcome": "cleaned",
            "parts": [{"part": encodable(name), "why": encodable(why)} for name, why in rows],
        },
    }


def _card(title: str, why: str, remedy: str, policy_name: str, facts: dict[str, str]) -> Bundle:
    lines = [
        *wrap(title, columns=COLUMNS),
        *wrap(why, indent="  ", columns=COLUMNS),
        *wrap(f"Instead: {remedy}", indent="  ", columns=COLUMNS),
    ]
    body = [m.paragraph(why), m.paragraph(m.element("strong", "Instead: "), remedy)]
    side = m.chips(("policy", clip(policy_name, 40)))
    return {
        "text/plain": "\n".join(lines),
        "text/html": m.card(title, *body, symbol="⊘", color=m.AMBER, label=title, side=side),
        COMM_JSON: {
            "version": JSON_VERSION,
            "outcome": "refused",
            **{key: encodable(value) for key, value in facts.items()},
        },
    }


# A question of the host's, as front ends put it: plain text, for an input prompt.
#
# All that is decided stands in it, since nothing else on the page is the host's alone. Each line
# begins with a mark that a cell's own prompts can't have, as they can't have a second line. The
# code is new each time: what was typed before, for something else, answers nothing.

_COLUMNS: Final = COLUMNS - 2
#: Characters of a line of the cell's, of a scope, and of a policy's name.
_LINE: Final = 56
_MEANING: Final = 9
_GOES_ON: Final = "¬"
#: Characters that are named which are not ASCII.
_MOST_LETTERS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked. ``shown`` are lines that have passed ``exact``, broken where they must be.

    ``offers`` says what each answer that allows it means, the narrowest first. ``note`` is why it
    is asked again.
    """

    asks: str
    shown: tuple[str, ...]
    offers: Mapping[str, str]
    code: str
    source: str = ""
    note: str = ""


def question(asked: Question) -> str:
    """Return the prompt; the answer is typed behind it."""
    lines = [*wrap(f"cellblock asks: {asked.asks}", columns=_COLUMNS), *asked.shown]
    if first := next((line for line in asked.source.splitlines() if line.strip()), ""):
        lines.append(f"The cell begins: {clip(exact(first.strip()), _LINE)}")
    for answer, meaning in asked.offers.items():
        indent = f"{answer:<{_MEANING}}"
        lines += wrap(meaning, indent=indent, hanging=" " * _MEANING, columns=_COLUMNS)
    lines += wrap(_how(asked), columns=_COLUMNS)
    lines += wrap(asked.note, columns=_COLUMNS) if asked.note else []
    return "".join(f"{HOSTS_MARK} {line}\n" for line in lines) + f"{HOSTS_MARK} Answer: "


def _how(asked: Question) -> str:
    *others, last = (_way(asked.code, answer) for answer in asked.offers)
    listed = f"{', '.join(others)} or {last}" if others else last
    return f"To allow it, type {listed}. Anything else is no."


def _way(code: str, answer: str) -> str:
    return f"{code} ({answer})" if answer == "once" else f"{code} {answer}"


def laid_out(name: str, literal: str) -> list[str]:
    """Return lines for one thing by its name: nothing is left out, no blank is added or lost.

    A line that goes on in the next ends with a mark of its own, so that its last blank is seen.
    """
    first, *rest = pieces(f"{name} = {literal}", _COLUMNS - 7)
    lines = [f"  {first}", *(f"      {piece}" for piece in rest)]
    return [*(f"{line}{_GOES_ON}" for line in lines[:-1]), lines[-1]]


def letters(text: str) -> list[str]:
    """Return lines of which characters of a text are shown and not ASCII, if any are.

    They may look as if they were; those that most do come first, since not all may be named.
    """
    found = sorted(dict.fromkeys(_letters(text)), key=_unlike)
    if not found:
        return []
    more = f" and {len(found) - _MOST_LETTERS} more" if len(found) > _MOST_LETTERS else ""
    named = ", ".join(f"{char} (U+{ord(char):04X})" for char in found[:_MOST_LETTERS])
    return wrap(f"not ASCII: {named}{more}", indent="  ", hanging=" " * 13, columns=_COLUMNS)


def _letters(text: str) -> Iterator[str]:
    return (char for char in text if not char.isascii() and exact(char) == char)


def _unlike(char: str) -> int:
    """Return how far a character is from being taken for one of ASCII, as far as can be told.

    Digits (Bengali's four is drawn as an 8) come first, then signs (a slash that parts no folders)
    and letters, those of Latin with an accent, and what is two columns wide (UAX #11).
    """
    if unicodedata.east_asian_width(char) == "W":
        return 3
    if char.isalpha():
        return 2 if unicodedata.decomposition(char).startswith("00") else 1
    return 0 if char.isnumeric() else 1
