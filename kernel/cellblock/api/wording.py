"""A result as text, from which a language model can correct its cell: short, whole, in order.

What was printed has passed the gateway. A cell's source and its files' names have not: what of them
stands here is spelled out, so that no name begins a line, and none reaches a terminal.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from cellblock.render.bundle import count
from cellblock.render.findings import ABOUT_THE_CELL
from cellblock.render.text import visible, visible_lines
from cellblock.render.values import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.api.results import CellError, Denial, Display, Result

#: Shares of the limit: stdout, stderr, the result, what ``name?`` shows, an error's own text.
_SHARES: Final = {"output": 0.5, "error_output": 0.2, "result": 0.2, "pages": 0.3, "error": 0.3}
_MOST_FRAMES: Final = 8
_MOST_DENIALS: Final = 12
#: Characters of a difference, and of what to write instead.
_LONGEST_DETAIL: Final = 2_000
_MOST_NAMED: Final = 10
#: How IPython begins a frame of a cell's, and one of anything else.
_CELL: Final = re.compile(r"\s*Cell In\[\d+\], line (\d+)(?:, in ([^\n]*))?\n?(.*)", re.DOTALL)
_FILE: Final = re.compile(r"\s*File ")
_ARROW: Final = re.compile(r"^-+> *\d+ ?(.*)$", re.MULTILINE)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")


def to_string(result: Result, limit: int) -> str:
    """Return what came of a cell; parts that are too long keep their beginning and their end."""
    parts = [_head(result), *_error(result, limit)]
    for title, text, share in (
        ("stdout", result.output, "output"),
        ("stderr", result.error_output, "error_output"),
        ("result", result.result or "", "result"),
        ("shown", "\n\n".join(result.pages), "pages"),
    ):
        if text.strip():
            parts.append(f"{title}:\n{clipped(text.rstrip(), int(limit * _SHARES[share]))}")
    parts += [line for line in _besides(result) if line]
    return "\n\n".join(part for part in parts if part)


def _head(result: Result) -> str:
    """Say in a line how it ended."""
    match result.status:
        case "ok":
            shown = (
                result.output
                or result.error_output
                or result.result
                or result.displays
                or result.pages
            )
            return "The cell ran." if shown else "The cell ran and showed nothing."
        case "denied":
            found = count(len(result.denials), "finding")
            ran = "stopped at" if result.usage is not None else "not run"
            return f"The cell was {ran}: {found} (policy {result.policy})."
        case "stopped":
            return result.stop.said if result.stop is not None else "The cell was stopped."
        case "error":
            return f"The cell failed: {result.error}"
    return f"The cell was not run: {result.error}"


def _error(result: Result, limit: int) -> Iterator[str]:
    if result.status == "denied":
        yield from map(_denial, result.denials[:_MOST_DENIALS])
        if (more := len(result.denials) - _MOST_DENIALS) > 0:
            yield f"And {count(more, 'more finding')}."
    elif result.error is not None and result.status in {"error", "refused", "failed"}:
        room = int(limit * _SHARES["error"])
        yield clipped("\n".join(_traced(result.error, str(result.error))), room)


def _denial(denial: Denial) -> str:
    """Say where, which rule, why, and what to do instead."""
    alone = denial.rule in ABOUT_THE_CELL or not denial.subject
    why = denial.why if alone else f"{denial.subject} {denial.why}"
    lines = [visible(f"line {denial.line}: {denial.rule}: {why}".rstrip())]
    if denial.excerpt.strip():
        lines.append(f"    {visible(denial.excerpt.strip().expandtabs(4))}")
    if denial.detail:
        lines.append(_indented(denial.detail))
    if denial.remedy:
        lines.append(f"  Instead: {visible(denial.remedy)}")
    if denial.rewrite:
        lines.append(_indented(denial.rewrite))
    return "\n".join(lines)


def _indented(text: str) -> str:
    shown = visible_lines(clipped(text, _LONGEST_DETAIL).expandtabs(4))
    return textwrap.indent(shown, "    ")


def _traced(error: CellError, said: str) -> Iterator[str]:
    """Yield the cell's own lines on the way to an error, and what it says beyond its message."""
    frames, tail = [], list[str]()
    for part in error.lines:
        text = plain(part)
        if (found := _CELL.match(text)) is not None:
            frames.append(_frame(found))
            tail = [] if _ARROW.search(text) else [found[3]]
        elif _FILE.match(text):
            tail = []
        else:
            tail.append(text)
    yield from frames[:1] + ["  …"] * (len(frames) > _MOST_FRAMES) + frames[1:][-_MOST_FRAMES + 1 :]
    if frames:
        rest = "\n".join(tail).replace(said, "").strip("\n- ")
        yield from rest.splitlines()
    else:
        yield error.traceback


def _frame(found: re.Match[str]) -> str:
    where = f"line {found[1]}" + (f", in {found[2].strip()}" if found[2] else "")
    line = _ARROW.search(found[3])
    return f"  {where}: {line[1].strip()}" if line else f"  {where}"


def _besides(result: Result) -> Iterator[str]:
    yield _displays(result.displays)
    yield "\n".join(
        f"Left out: {number:,} bytes of {kind} ({kind}_max_bytes)."
        for kind, number in result.left_out.items()
    )
    if result.artifacts:
        named = [
            f"{one.name} ({one.content_type}, {size(one.size_bytes)})" for one in result.artifacts
        ]
        yield f"Files copied out: {_listed(named)}."
    if result.skipped:
        left = [f"{visible(one.name)}: {one.why}" for one in result.skipped]
        yield f"Not copied: {_listed(left)}."


def _displays(displays: Sequence[Display]) -> str:
    named = []
    for one in displays:
        text = str(one).strip()
        kinds = ", ".join(kind for kind in one.data if kind != "text/plain")
        named.append(clipped(text, 200) if text and not kinds else f"<{kinds or 'nothing'}> {text}")
    return f"Displayed: {_listed([clipped(one, 300) for one in named])}" if named else ""


def _listed(named: Sequence[str]) -> str:
    more = len(named) - _MOST_NAMED
    return "; ".join([*named[:_MOST_NAMED], *([f"and {more:,} more"] if more > 0 else [])])


def plain(text: str) -> str:
    """Return ``text`` without a terminal's colours."""
    return _COLOUR.sub("", text)


def clipped(text: str, room: int) -> str:
    """Return ``text``, or its beginning and its end where it is longer than ``room``."""
    if len(text) <= room:
        return text
    head, tail = text[: room * 2 // 3], text[len(text) - room // 3 :]
    return f"{head}\n… {len(text) - len(head) - len(tail):,} characters left out …\n{tail}"
