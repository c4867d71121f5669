"""The result of a cell: frozen values, cleaned and bounded like all output of a guest.

``result_of`` makes one of a cell that has ended, ``Result.to_string`` makes text of it from which
a language model can correct its cell.
"""

from __future__ import annotations

import re
import textwrap
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from cellblock.api.result_parts import Origin, Provenance, ToolCall
from cellblock.host.cell import status as cell_status
from cellblock.host.cell.transcript import Output, Transcript
from cellblock.render.cards import (
    OUTCOME_JSON,
    count,
    size,
)
from cellblock.render.outcomes import ABOUT_THE_CELL
from cellblock.render.text import clip, visible, visible_lines
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from cellblock.analysis import Finding
    from cellblock.host.cell.cell import CellRun
    from cellblock.host.cell.status import Views
    from cellblock.host.services.artifacts import Artifact, Skipped
    from cellblock.host.services.tools.calls import CallRecord
    from cellblock.host.session.types import Outcome, Stopped, Usage
    from cellblock.render.outcomes import Refusal


Status = Literal["ok", "error", "denied", "refused", "stopped", "failed"]
_PLAIN: Final = "text/plain"


@dataclass(frozen=True, slots=True)
class Display:
    """Something rich that a cell showed: mime types to text or JSON data."""

    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    #: The id under which a cell updates it.
    display_id: str | None = None

    def __str__(self) -> str:
        return str(self.data.get(_PLAIN, ""))


@dataclass(frozen=True, slots=True)
class CellError:
    """Why a cell failed: an exception's type and message; ``traceback`` has no terminal colours.

    ``type`` is ``PolicyDenied`` where cells were refused, ``CellStopped`` where one was ended from
    outside: what to say then is in ``Result.denials`` and ``Result.stop``.
    """

    type: str
    message: str
    traceback: str
    #: As it was sent, colours and all, line by line.
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True, slots=True)
class Denial:
    """A place in a cell that the policy refuses. Lines count from 1, columns from 0.

    ``rewrite`` is a line or two that do the same with an operation that the policy grants.
    """

    rule: str
    line: int
    column: int
    end_column: int
    excerpt: str
    subject: str
    why: str
    remedy: str
    rewrite: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """A cell that was ended from outside.

    ``why`` is ``timeout``, ``cpu``, ``memory``, ``forks``, ``files``, ``scratch``, ``interrupt``,
    ``crash``, ``violation``, ``breach`` or ``silent``; ``limit`` is the limit it was over, in
    words. ``state`` says what became of the variables.
    """

    why: str
    limit: str
    state: Literal["kept", "restored", "gone"]
    said: str


class Variants(NamedTuple):
    """What came of cells that ran side by side; ``kept`` is the number of the one that was kept."""

    results: tuple[Result, ...]
    kept: int | None


def receipts_module() -> ModuleType:
    """Return ``api.receipts``, which needs an extra. Raises ReceiptError without that."""
    from cellblock.api import receipts  # noqa: PLC0415 - an extra

    return receipts


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one cell.

    ``output`` and ``error_output`` are what it wrote to stdout and stderr, ``result`` is the
    representation of its last expression's value. ``outputs`` has everything, in order.
    """

    status: Status
    output: str = ""
    error_output: str = ""
    result: str | None = None
    #: That value itself, where it is data of up to 10,000 items and 1 MiB: None, bool, int, float,
    #: str, bytes, lists, dicts with str keys. None for any other; ``Sandbox.get`` has what is more.
    value: Any = None
    #: The same with all its types, as a cell's other displays.
    rich_result: Display | None = None
    error: CellError | None = None
    displays: tuple[Display, ...] = ()
    #: What ``name?`` shows, each as text: a front end has a pager for it.
    pages: tuple[str, ...] = ()
    denials: tuple[Denial, ...] = ()
    stop: Stop | None = None
    #: What the OS layer refused it, where that is what it failed with.
    refusal: Refusal | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_calls_left_out: int = 0
    artifacts: tuple[Artifact, ...] = ()
    #: Files that were to be copied out, and why they were not.
    skipped: tuple[Skipped, ...] = ()
    #: None for a cell that did not run.
    usage: Usage | None = None
    #: Bytes that were left out of stdout, stderr and displays.
    left_out: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    execution_count: int = 0
    #: What the policy is called, and the source that was run.
    policy: str = ""
    source: str = ""
    provenance: Provenance | None = field(default=None, repr=False, compare=False)

    @property
    def receipt(self) -> str:
        """The receipt of this result, signed with the user's key: JSON; see docs/receipts.md.

        Made when it is asked for, and then says which staged files were kept until now. Raises
        ReceiptError.
        """
        signed: str = receipts_module().sign(
            self.provenance,
            status=self.status,
            outputs=self.outputs,
            texts={"stdout": self.output, "stderr": self.error_output, "result": self.result},
            artifacts={one.name: one.sha256 for one in self.artifacts},
            tool_calls=self.tool_calls,
            source=self.source,
            execution_count=self.execution_count,
            denials=tuple(one.rule for one in self.denials),
            tool_calls_left_out=self.tool_calls_left_out,
        )
        return signed

    @property
    def success(self) -> bool:
        """Whether it ran to its end without an exception."""
        return self.status == "ok"

    def to_string(self, limit: int = 8_000) -> str:
        """Return this as text from which a language model can correct its cell.

        At most ``limit`` characters.
        """
        return _as_text(self, limit)

    def __str__(self) -> str:
        return self.to_string()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the user's: ``shape`` is a length, or the sides of an array or table.

    ``size`` is bytes, without what it refers to; 0 where that is not known.
    """

    name: str
    type: str
    shape: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a cell may do only if the program says so: import modules, or make one call.

    ``names`` are the modules', or the function's, whose arguments are whole in ``args`` and
    ``kwargs``, secrets too. ``text`` is the question with all of that, in lines that can be shown
    to anybody: long ones are cut, secrets left out, and nothing in them moves a cursor or hides.
    ``offers`` are the answers that allow it: a call that ``text`` can't show whole is not allowed
    by itself, so ``once`` is not among them.
    """

    kind: Literal["call", "import"]
    names: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    text: str
    source: str
    execution_count: int
    offers: tuple[Literal["once", "session"], ...]


# --- a result as text -----------------------------------------------------------------------------
#
# What was printed has passed the output gateway. A cell's source and its files' names have not:
# their invisible characters are spelled out here, so that no name begins a line or acts on a
# terminal.
#
# Invariant: at the left edge a line is the host's. Lines that a cell made are indented, all but the
# first of a name or message that goes on in a line of the host's. So no cell can print "stderr:" or
# "The cell was not run" and have it read as what the host says.

_PARTS_GAP, _ELLIPSIS = "\n\n", "…"
_INDENT: Final = "  "
_NOTHING: Final = "The cell ran and showed nothing."
#: Characters below which a part is left out rather than cut, and below which the end of a text is
#: not worth a note on what is missing before it.
_MIN_PART: Final = 60
_MIN_CLIPPED: Final = 20
_MAX_FRAMES: Final = 8
_MAX_CAUSES: Final = 3
_MAX_DENIALS: Final = 12
#: Characters of a difference, and of what to write instead.
_MAX_DETAIL: Final = 2_000
_MAX_NAMES: Final = 10
_MAX_NAME: Final = 300
#: How IPython begins a frame of a cell's, and one of anything else.
_CELL: Final = re.compile(r"\s*Cell In\[\d+\], line (\d+)(?:, in ([^\n]*))?\n?(.*)", re.DOTALL)
_FILE: Final = re.compile(r"\s*File ")
#: What stands above the frames of an error: a rule, its type.
_HEAD: Final = re.compile(r"-+|\S+ +Traceback \(most recent call last\)")
_ARROW: Final = re.compile(r"^-+> *\d+ ?(.*)$", re.MULTILINE)
#: What stands between two errors of which the second was raised from, or during, the first.
_CHAINED: Final = {
    "The above exception was the direct cause of the following exception:": "Caused by",
    "During handling of the above exception, another exception occurred:": "While handling",
}
_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class _Part:
    """A text beneath its title."""

    text: str
    title: str = ""

    def __len__(self) -> int:
        return len(self.title) + len(self.text)

    def clipped(self, room: int) -> str:
        if len(self.title) >= room:
            return clipped(f"{self.title}{self.text}", room)
        return f"{self.title}{clipped(self.text, room - len(self.title))}"


def _as_text(result: Result, limit: int) -> str:
    """Return a result as text; parts that are too long keep their beginning and their end.

    At most ``limit`` characters. Where there is not room for all, how it ended and its error, or
    denials, have two thirds; what is short among the rest stays whole.
    """
    if limit < 1:
        return ""
    ending, shown = _ending_parts(result, limit), list(_shown_parts(result))
    gap = len(_PARTS_GAP)
    if sum(len(part) + gap for part in [*ending, *shown]) - gap > limit:
        left = limit - sum(len(part) + gap for part in shown)
        texts = _fitted(ending, max(-(-limit * 2 // 3), left), least=1)
        texts += _fitted(shown, limit - len(_PARTS_GAP.join([*texts, ""])))
        return _PARTS_GAP.join(texts)
    return _PARTS_GAP.join(part.clipped(limit) for part in [*ending, *shown])


def _fitted(parts: Sequence[_Part], room: int, *, least: int = 0) -> list[str]:
    """Return parts that fit ``room`` together: short ones whole, the others cut to equal lengths.

    Where they would be too short to be of use, the last are left out, but not the first ``least``.
    """
    for number in range(len(parts), least - 1, -1):
        kept = [*parts[:number], *([_Part(_ELLIPSIS)] if number < len(parts) else [])]
        rooms, left = [0] * len(kept), max(0, room - len(_PARTS_GAP) * max(0, len(kept) - 1))
        for done, index in enumerate(sorted(range(len(kept)), key=lambda at: len(kept[at]))):
            rooms[index] = min(len(kept[index]), left // (len(kept) - done))
            left -= rooms[index]
        fitted = list(zip(kept, rooms, strict=True))
        if all(has >= min(len(part), _MIN_PART) for part, has in fitted):
            return [part.clipped(has) for part, has in fitted]
    return [part.clipped(room) for part in parts[:least]]


def _ending_parts(result: Result, limit: int) -> list[_Part]:
    """Return how the cell ended, and its error or denials."""
    error = str(result.error)
    match result.status:
        case "ok":
            texts = (result.output, result.error_output, result.result)
            shown = any(texts) or result.displays or result.pages
            said = "The cell ran." if shown else _outcome_of(result) or _NOTHING
            return [_Part(said)]
        case "denied":
            found = count(len(result.denials), "finding")
            how = "stopped at" if result.usage is not None else "not run"
            head = f"The cell was {how}: {found} (policy {result.policy})."
            room = limit - len(head) - len(_PARTS_GAP)
            parts = [_Part(head), _Part(_denials_text(result.denials, room))]
        case "stopped":
            said = result.stop.said if result.stop is not None else "The cell was stopped."
            return [_Part(said)] if said else []
        case _:
            how = "failed" if result.status == "error" else "was not run"
            said = _continued(_visible_source(error).split("\n"))
            parts = [_Part(f"The cell {how}: {said}")]
            if result.error is not None:
                parts.append(_Part("\n".join(_traceback(result.error, error))))
    return [part for part in parts if part.text]


def _outcome_of(result: Result) -> str:
    """Return what a card says of a state that was gone back to, as by ``%undo``."""
    cards = (one.content["data"] for one in result.outputs if one.kind == "display_data")
    return "\n".join(card["text/plain"] for card in cards if OUTCOME_JSON in card)


def _denials_text(denials: Sequence[Denial], room: int) -> str:
    """Return as many denials as there is room for, at least one, and the number of others."""
    texts = list(map(_denial_text, denials[:_MAX_DENIALS]))
    while True:
        more = len(denials) - len(texts)
        rest = [f"And {count(more, 'more finding')}."] if more else []
        text = _PARTS_GAP.join([*texts, *rest])
        if len(text) <= room or len(texts) <= 1:
            return text
        texts.pop()


def _denial_text(denial: Denial) -> str:
    """Return where, which rule, why, and what to do instead."""
    alone = denial.rule in ABOUT_THE_CELL or not denial.subject
    why = denial.why if alone else f"{denial.subject} {denial.why}"
    lines = [visible(f"line {denial.line}: {denial.rule}: {why}".rstrip())]
    if denial.excerpt.strip():
        lines.append(f"    {_visible_line(denial.excerpt)}")
    if denial.remedy:
        lines.append(f"  Instead: {visible(denial.remedy)}")
    return "\n".join([*lines, *_indented(denial.rewrite)])


def _visible_line(line: str) -> str:
    """Return a line of the cell's source with nothing in it that acts on a terminal."""
    return visible(line.strip().expandtabs(4))


def _visible_source(text: str) -> str:
    """Return lines that a cell wrote with nothing else that acts on a terminal."""
    return "\n".join(visible(line.expandtabs(4)) for line in text.split("\n"))


def _indented(text: str) -> list[str]:
    shown = visible_lines(clipped(text, _MAX_DETAIL).expandtabs(4))
    return [textwrap.indent(shown, "    ")] if text else []


def _indented_lines(text: str) -> str:
    """Return a cell's text beneath a title: whatever ends a line, the next one is indented too."""
    return textwrap.indent("\n".join(text.splitlines()), _INDENT)


def _continued(lines: Sequence[str]) -> str:
    """Return a cell's lines of which the first goes on in a line of the host's."""
    return f"\n{_INDENT}".join(lines)


def _traceback(error: CellError, said: str) -> Iterator[str]:
    """Yield the cell's own frames, the error's text beyond its message, and the errors before it.

    An error that another one was raised from, or during, has a line of the host's and its frames.
    """
    before, texts = list[tuple[str, list[str]]](), list[str]()
    for text in map(plain, error.lines):
        if (how := _CHAINED.get(text.strip())) is not None:
            before.append((how, texts))
            texts = []
        else:
            texts.append(text)
    frames, tail = _frames(texts)
    yield from frames
    rest = tail.replace(said, "").strip("\n") if frames else error.traceback
    # A syntax error's own line is among it: only what the traceback itself broke is broken.
    if rest.strip("- \n"):
        yield textwrap.indent(_visible_source(rest), _INDENT)
    if frames:
        for how, texts in before[: -_MAX_CAUSES - 1 : -1]:
            frames, tail = _frames(texts)
            message = _visible_source(clipped(tail.strip(), _MAX_NAME))
            yield _continued(f"{how}: {message}".split("\n"))
            yield from frames


def _frames(texts: Sequence[str]) -> tuple[list[str], str]:
    """Return lines on the cell's own frames of one error's traceback, and what follows those."""
    frames, tail = list[str](), list[str]()
    for text in texts:
        if (found := _CELL.match(text)) is not None:
            where = f"  line {found[1]}" + (f", in {_visible_line(found[2])}" if found[2] else "")
            line = _ARROW.search(found[3])
            frames.append(f"{where}: {_visible_line(line[1])}" if line else where)
            tail = [] if _ARROW.search(text) else [found[3]]
        elif _FILE.match(text) or _HEAD.fullmatch(text):
            tail = []
        else:
            tail.append(text)
    left_out = ["  …"] * (len(frames) > _MAX_FRAMES)
    return frames[:1] + left_out + frames[1:][1 - _MAX_FRAMES :], "\n".join(tail)


def _shown_parts(result: Result) -> Iterator[_Part]:
    """Yield what the cell showed, and what else came of it."""
    for title, text in (
        ("stdout", result.output),
        ("stderr", result.error_output),
        ("result", result.result or ""),
        ("shown", _PARTS_GAP.join(result.pages)),
    ):
        if text.strip():
            yield _Part(_indented_lines(text.rstrip()), f"{title}:\n")
    named = []
    for one in result.displays:
        text = _continued(str(one).strip().splitlines())
        kinds = ", ".join(kind for kind in one.data if kind != _PLAIN)
        shown = clipped(text, 200) if text and not kinds else f"<{kinds or 'nothing'}> {text}"
        named.append(clipped(shown, _MAX_NAME))
    if named:
        yield _Part(f"Displayed: {_listed(named)}")
    left_out = [
        f"Left out: {number:,} bytes of {kind} ({kind}_max_bytes)."
        for kind, number in result.left_out.items()
    ]
    if left_out:
        yield _Part("\n".join(left_out))
    copied = [(a.name, f" ({a.content_type}, {size(a.size_bytes)})") for a in result.artifacts]
    skipped = [(one.name, f": {one.why}") for one in result.skipped]
    for what, files in (("Files copied out", copied), ("Not copied", skipped)):
        lines = [clip(visible(name), _MAX_NAME) + visible(more) for name, more in files]
        if lines:
            yield _Part(f"{what}: {_listed(lines)}.")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return "; ".join([*names[:_MAX_NAMES], *([f"and {more:,} more"] if more > 0 else [])])


def plain(text: str) -> str:
    """Return ``text`` without a terminal's colours."""
    return _COLOUR.sub("", text)


def clipped(text: str, room: int) -> str:
    """Return ``text``, or its beginning and its end in at most ``room`` characters.

    Lines are whole where that costs less than half of either. Else the end begins in the line that
    says what is missing: wherever it is cut, it begins no line.
    """
    if len(text) <= room:
        return text
    note = "\n… {:,} characters left out … "
    kept = room - len(note.format(len(text)))
    if kept < _MIN_CLIPPED:
        return f"{text[: room - 1]}{_ELLIPSIS}" if room > 0 else ""
    first, last = kept * 2 // 3, kept // 3
    head, tail = text[:first], text[len(text) - last :]
    if (end := text.rfind("\n", first // 2, first + 1)) >= 0:
        head = text[:end]
    if (begin := text.find("\n", len(text) - last - 1, len(text) - last // 2)) >= 0:
        note, tail = f"{note.rstrip()}\n", text[begin + 1 :]
    return head + note.format(len(text) - len(head) - len(tail)) + tail


# --- from a cell that has ended to its result -----------------------------------------------------


def result_of(
    run: CellRun,
    content: Mapping[str, Any],
    outputs: tuple[Output, ...],
    left_out: Mapping[str, int],
    views: Views,
    session: str,
    origin: Origin | None,
) -> Result:
    """Return the result of a cell; ``content`` is that of an ``execute_reply``.

    ``session`` is what the audit log calls the session, ``origin`` the one that it is a fork of.
    """
    outcome, exported = run.outcome, run.exported
    failed, transcript = content["status"] != "ok", _transcript(outputs)
    shown = transcript.outputs()
    displays = _displays(transcript, shown)
    status: Status = "ok" if not failed else "failed" if views.failed else "refused"
    if failed and not views.failed and outcome is not None:
        status = outcome.status
    rich = next((one for kind, one in displays if kind == "execute_result"), None)
    stopped = outcome.stopped if outcome is not None else None
    calls = outcome.tool_calls if outcome is not None else None
    return Result(
        status=status,
        output=_stream_text(shown, "stdout"),
        error_output=_stream_text(shown, "stderr"),
        result=str(rich) if rich is not None else None,
        value=_value(outcome) if status == "ok" and outcome is not None else None,
        rich_result=rich,
        error=_cell_error(content) if failed else None,
        displays=tuple(one for kind, one in displays if kind == "display_data"),
        pages=tuple(
            plain(page["data"][_PLAIN]) for page in content.get("payload", ()) if "data" in page
        ),
        denials=tuple(map(_denial, outcome.findings)) if outcome is not None else (),
        stop=_stop(stopped, content, views) if stopped is not None else None,
        refusal=run.refusal if failed else None,
        tool_calls=tuple(map(_tool_call, calls.records)) if calls is not None else (),
        tool_calls_left_out=calls.left_out if calls is not None else 0,
        artifacts=tuple(exported.artifacts) if exported is not None else (),
        skipped=tuple(exported.skipped) if exported is not None else (),
        usage=outcome.usage if outcome is not None else None,
        left_out=dict(left_out),
        outputs=outputs,
        execution_count=run.count,
        policy=views.in_force.name if views.in_force is not None else "",
        source=run.request.code,
        provenance=_provenance(views, session, origin),
    )


def _provenance(views: Views, session: str, origin: Origin | None) -> Provenance | None:
    if views.in_force is None:
        return None
    return Provenance(
        policy=views.in_force,
        scratch=views.scratch,
        backend=views.backend,
        enforcement=views.enforcement,
        gaps=views.gaps,
        proved=views.proved,
        session=session,
        staged=views.staged,
        ended=time.time(),
        variables_from=origin,
    )


def _value(outcome: Outcome) -> Any:
    """Return the value of a cell that ran, as its guest says; None where that is none."""
    try:
        return values.checked(outcome.value, values.SMALL_BYTES)
    except ValueError:
        return None


def _transcript(outputs: tuple[Output, ...]) -> Transcript:
    """Return what a cell shows in the end, without cellblock's cards.

    What widgets capture is among it: a result has no widgets that would show it.
    """
    transcript = Transcript()
    for output in outputs:
        if not output.ours:
            transcript.apply(output)
    return transcript


def _stream_text(shown: Sequence[Mapping[str, Any]], name: str) -> str:
    return "".join(one["text"] for one in shown if one.get("name") == name)


def _displays(
    transcript: Transcript, shown: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Display]]:
    """Return displays and results, each with its type."""
    ids = {at: name for name, positions in transcript.displays.items() for at in positions}
    return [
        (one["output_type"], Display(one["data"], one["metadata"], ids.get(at)))
        for at, one in enumerate(shown)
        if "data" in one
    ]


def _cell_error(content: Mapping[str, Any]) -> CellError:
    lines = tuple(content.get("traceback", ()))
    message, traceback = plain(content.get("evalue", "")), plain("\n".join(lines))
    return CellError(content.get("ename", ""), message, traceback, lines)


def _denial(finding: Finding) -> Denial:
    return Denial(**{name: getattr(finding, name) for name in Denial.__slots__})


def _stop(stopped: Stopped, content: Mapping[str, Any], views: Views) -> Stop:
    state: Any = "kept" if stopped.kept else "gone" if stopped.restored is None else "restored"
    said = plain("\n".join(content.get("traceback", ())))
    return Stop(stopped.why, cell_status.stop_reason(stopped, views.in_force)[1], state, said)


def _tool_call(record: CallRecord) -> ToolCall:
    shown = record.as_dict()
    error = shown.get("error")
    return ToolCall(
        name=shown["name"],
        args=tuple(shown["args"]),
        kwargs=shown["kwargs"],
        status=record.status,
        seconds=shown["seconds"],
        result=shown.get("result"),
        error=(error["type"], error["message"]) if error is not None else None,
        tokens=record.tokens,
    )
