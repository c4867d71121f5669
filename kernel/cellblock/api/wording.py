"""A result as text, from which a language model can correct its cell: short, whole, in order.

What was printed has passed the gateway. A cell's source and its files' names have not: what of them
stands here is spelled out, so that no name begins a line, and none reaches a terminal.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.render.bundle import count
from cellblock.render.findings import ABOUT_THE_CELL
from cellblock.render.text import clip, visible, visible_lines
from cellblock.render.values import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cellblock.api.results import CellError, Denial, Display, Result

#: Shares of the limit: stdout, stderr, the result, what ``name?`` shows, an error's own text.
_SHARES: Final = {"output": 0.5, "error_output": 0.2, "result": 0.2, "pages": 0.3, "error": 0.3}
#: Stands between parts, and in the place of those for which there is no room.
_GAP, _MORE = "\n\n", "…"
#: Characters below which a part is left out rather than cut.
_LEAST: Final = 60
#: Characters below which a text's end is not worth to say how much is missing before it.
_FEWEST: Final = 20
_MOST_FRAMES: Final = 8
_MOST_DENIALS: Final = 12
#: Characters of a difference, and of what to write instead.
_LONGEST_DETAIL: Final = 2_000
_MOST_NAMED: Final = 10
_LONGEST_NAME: Final = 300
#: How IPython begins a frame of a cell's, and one of anything else.
_CELL: Final = re.compile(r"\s*Cell In\[\d+\], line (\d+)(?:, in ([^\n]*))?\n?(.*)", re.DOTALL)
_FILE: Final = re.compile(r"\s*File ")
_ARROW: Final = re.compile(r"^-+> *\d+ ?(.*)$", re.MULTILINE)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class _Part:
    """A text beneath its title, of which at most ``most`` characters are shown."""

    title: str
    text: str
    most: int

    def __len__(self) -> int:
        return len(self.title) + min(len(self.text), self.most)

    def within(self, room: int) -> str:
        if len(self.title) >= room:
            return clipped(f"{self.title}{self.text}", room)
        return f"{self.title}{clipped(self.text, min(self.most, room - len(self.title)))}"


def to_string(result: Result, limit: int) -> str:
    """Return what came of a cell; parts that are too long keep their beginning and their end.

    At most ``limit`` characters. Where there is not room for all, how it ended and its error, or
    denials, have two thirds; what is short among the rest stays whole.
    """
    if limit < 1:
        return ""
    own, rest = _own(result, limit), [*_shown(result, limit), *_besides(result, limit)]
    if _length([*own, *rest]) > limit:
        left = limit - _length(rest) - len(_GAP) if rest else limit
        said = _shared(own, max(-(-limit * 2 // 3), left), least=1)
        room = limit - len(_GAP.join([*said, ""]))
        return _GAP.join([*said, *_shared(rest, room)])
    return _GAP.join(part.within(limit) for part in [*own, *rest])


def _length(parts: Sequence[_Part]) -> int:
    return sum(map(len, parts)) + len(_GAP) * max(0, len(parts) - 1)


def _shared(parts: Sequence[_Part], room: int, *, least: int = 0) -> list[str]:
    """Return parts within ``room`` altogether: the short ones whole, the others alike.

    The last ones are left out where none would be of use, all but the ``least`` first.
    """
    for number in range(len(parts), least - 1, -1):
        more = [_Part("", _MORE, len(_MORE))] if number < len(parts) else []
        kept = [*parts[:number], *more]
        rooms = _rooms(list(map(len, kept)), room - len(_GAP) * max(0, len(kept) - 1))
        if all(has >= min(len(part), _LEAST) for part, has in zip(kept, rooms, strict=True)):
            return [part.within(has) for part, has in zip(kept, rooms, strict=True)]
    return [part.within(room) for part in parts[:least]]


def _rooms(lengths: Sequence[int], room: int) -> list[int]:
    """Return what each is given: its length, or as much as any other that is longer."""
    rooms, left = [0] * len(lengths), max(0, room)
    for done, index in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        rooms[index] = min(lengths[index], left // (len(lengths) - done))
        left -= rooms[index]
    return rooms


def _own(result: Result, limit: int) -> list[_Part]:
    """Return how it ended, and what led there."""
    head = _Part("", _head(result), limit)
    if result.status == "denied":
        error = _Part("", _denied(result.denials, limit - len(head) - len(_GAP)), limit)
    else:
        error = _Part("", _error(result), int(limit * _SHARES["error"]))
    return [part for part in (head, error) if part.text]


def _shown(result: Result, limit: int) -> Iterator[_Part]:
    for title, text, share in (
        ("stdout", result.output, "output"),
        ("stderr", result.error_output, "error_output"),
        ("result", result.result or "", "result"),
        ("shown", _GAP.join(result.pages), "pages"),
    ):
        if text.strip():
            yield _Part(f"{title}:\n", text.rstrip(), int(limit * _SHARES[share]))


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
            return f"The cell failed: {_spelled_out(str(result.error))}"
    return f"The cell was not run: {_spelled_out(str(result.error))}"


def _spelled_out(text: str) -> str:
    """Return an error's words, of which only line breaks act: the cell wrote them."""
    return "\n".join(visible(line.expandtabs(4)) for line in text.split("\n"))


def _error(result: Result) -> str:
    if result.error is None or result.status not in {"error", "refused", "failed"}:
        return ""
    return "\n".join(_traced(result.error, str(result.error)))


def _denied(denials: Sequence[Denial], room: int) -> str:
    """Say as many denials as there is room for, one at least, and count the others."""
    said = list(map(_denial, denials[:_MOST_DENIALS]))
    while True:
        more = len(denials) - len(said)
        text = _GAP.join([*said, *([f"And {count(more, 'more finding')}."] if more else [])])
        if len(text) <= room or len(said) <= 1:
            return text
        said.pop()


def _denial(denial: Denial) -> str:
    """Say where, which rule, why, and what to do instead."""
    alone = denial.rule in ABOUT_THE_CELL or not denial.subject
    why = denial.why if alone else f"{denial.subject} {denial.why}"
    lines = [visible(f"line {denial.line}: {denial.rule}: {why}".rstrip())]
    if denial.excerpt.strip():
        lines.append(f"    {_source(denial.excerpt)}")
    if denial.detail:
        lines.append(_indented(denial.detail))
    if denial.remedy:
        lines.append(f"  Instead: {visible(denial.remedy)}")
    if denial.rewrite:
        lines.append(_indented(denial.rewrite))
    return "\n".join(lines)


def _source(line: str) -> str:
    """Return a line of the cell's as one that commands nothing."""
    return visible(line.strip().expandtabs(4))


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
    rest = "\n".join(tail).replace(said, "").strip("\n- ") if frames else error.traceback
    # A syntax error's own line is among it: only what the traceback itself broke is broken.
    if rest:
        yield _spelled_out(rest)


def _frame(found: re.Match[str]) -> str:
    where = f"line {found[1]}" + (f", in {_source(found[2])}" if found[2] else "")
    line = _ARROW.search(found[3])
    return f"  {where}: {_source(line[1])}" if line else f"  {where}"


def _besides(result: Result, limit: int) -> Iterator[_Part]:
    left_out = (
        f"Left out: {number:,} bytes of {kind} ({kind}_max_bytes)."
        for kind, number in result.left_out.items()
    )
    copied = (
        (one.name, f" ({one.content_type}, {size(one.size_bytes)})") for one in result.artifacts
    )
    skipped = ((one.name, f": {one.why}") for one in result.skipped)
    for text in (
        _displays(result.displays),
        "\n".join(left_out),
        _files("Files copied out", copied),
        _files("Not copied", skipped),
    ):
        if text:
            yield _Part("", text, limit)


def _files(what: str, named: Iterable[tuple[str, str]]) -> str:
    """Say of files what there is to be said; each is its name, and what stands behind it."""
    shown = [clip(visible(name), _LONGEST_NAME) + visible(more) for name, more in named]
    return f"{what}: {_listed(shown)}." if shown else ""


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
    """Return ``text``, or its beginning and its end where it is longer than ``room``.

    What is returned never is longer than that.
    """
    if len(text) <= room:
        return text
    kept = room - len(_note(len(text)))
    if kept < _FEWEST:
        return f"{text[: room - 1]}{_MORE}" if room > 0 else ""
    head, tail = text[: kept * 2 // 3], text[len(text) - kept // 3 :]
    return f"{head}{_note(len(text) - len(head) - len(tail))}{tail}"


def _note(left_out: int) -> str:
    return f"\n… {left_out:,} characters left out …\n"
