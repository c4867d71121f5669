"""The result of a cell: frozen values, cleaned and bounded like all output of a guest.

- ``Result`` and the values in it are what programs get from ``Sandbox.execute``.
- ``result_of`` makes a ``Result`` when a cell has ended. ``api.front`` calls it.
- ``Result.to_string`` (``text_within``) is the text from which a language model can correct its
  cell. MCP, the integrations and ``print(result)`` show it.
- ``logged`` and ``value_text`` are the text for agent frameworks that show their model a log of
  the cell, and the cell's value separately.

A text is made of parts, each beneath a heading (``render.headings``):

    outputs ─ Transcript ─> _Text, Display, _ResultShown, _ErrorShown    what the cell showed
                        ─> _LazyPart ─> _Part                 beneath a heading, cleaned, marked
                        ─> _fitted                            cut so that all fit the limit
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from cellblock.analysis.transform import is_python
from cellblock.api.cut_text import Cut, joined
from cellblock.api.result_parts import Origin, Provenance, ToolCall
from cellblock.api.widget_words import shown_at_the_end
from cellblock.host.cell import status as cell_status
from cellblock.host.cell.transcript import Output, Transcript
from cellblock.host.output.readable import is_name, readable
from cellblock.host.output.text import Frame, split_tail, without_styles
from cellblock.policy.vocabulary import PRESETS
from cellblock.render.allowing import allowing
from cellblock.render.cards import (
    OUTCOME_JSON,
    count,
    size,
)
from cellblock.render.for_models import for_models
from cellblock.render.headings import Heading, beneath, own_lines, reads_as_heading
from cellblock.render.outcomes import ABOUT_THE_CELL
from cellblock.render.text import clip, verbatim_lines, visible, visible_lines
from cellblock.wire import arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    from cellblock.analysis import Finding
    from cellblock.host.cell.cell import CellRun
    from cellblock.host.cell.status import Views
    from cellblock.host.services.artifacts import Artifact, Skipped
    from cellblock.host.services.tools.calls import CallRecord
    from cellblock.host.session.types import Outcome, Stopped, Usage
    from cellblock.render.outcomes import Refusal


Status = Literal["ok", "error", "denied", "refused", "stopped", "failed"]
_PLAIN, _HTML = "text/plain", "text/html"


@dataclass(frozen=True, slots=True)
class Display:
    """A display: what a cell showed, as a mapping of mime types to text or JSON data."""

    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    #: The id under which cells can update the display.
    display_id: str | None = None
    #: Whether the host made it: a table or card such as that of ``%changes``.
    by_host: bool = False

    def __str__(self) -> str:
        return str(self.data.get(_PLAIN, ""))


@dataclass(frozen=True, slots=True)
class CellError:
    """Why a cell failed: the type and message of an exception, and its traceback without colours.

    ``type`` is ``PolicyDenied`` if the policy refused the cell, and ``CellStopped`` if the cell was
    ended from outside. ``Result.denials`` and ``Result.stop`` then say more.
    """

    type: str
    message: str
    traceback: str
    #: The parts of the traceback as the guest sent them, with terminal colours.
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True, slots=True)
class Denial:
    """A place in a cell that the policy refuses. Lines count from 1, columns from 0.

    ``remedy`` says what to write in the cell instead. ``rewrite`` is a line or two that do the same
    with an operation that the policy grants, if there is one. ``allows`` are the lines of a policy
    file that would allow the place as it is.
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
    allows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """How and why a cell was ended from outside.

    ``why`` is ``timeout``, ``cpu``, ``memory``, ``mapped``, ``forks``, ``scratch``, ``files``,
    ``folders``, ``deep``, ``locked``, ``interrupt``, ``crash``, ``violation``, ``breach`` or
    ``silent``. ``limit`` is the limit that the cell exceeded, in words. ``state`` says what became
    of the variables. ``said`` is the whole message, as a kernel shows it.
    """

    why: str
    limit: str
    state: Literal["kept", "restored", "gone"]
    said: str
    #: Where an interrupted cell was, as its guest says: lines of a traceback.
    frames: tuple[str, ...] = ()


class Variants(NamedTuple):
    """The results of cells that ran side by side, and the index of the variant that was kept."""

    results: tuple[Result, ...]
    kept: int | None


def receipts_module() -> ModuleType:
    """Return the module ``api.receipts``. Raises ReceiptError if its extra is not installed."""
    from cellblock.api import receipts  # noqa: PLC0415 - an extra

    return receipts


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one cell.

    ``output`` and ``error_output`` are the text that it wrote to stdout and stderr, ``result`` is
    the repr of its last expression's value. ``outputs`` has everything, in order.
    """

    status: Status
    output: str = ""
    error_output: str = ""
    #: Text that earlier cells printed after the previous result, by threads, tasks and programs
    #: that they left running. From the time when this cell ran, it has only the text of earlier
    #: cells' tasks, and of threads that run a function of an earlier cell. Text that anything else
    #: printed meanwhile is in ``output``.
    late_output: str = ""
    #: Lines that the host added, for example on what was left out. The outcome is not among them.
    notices: tuple[str, ...] = ()
    result: str | None = None
    #: The last expression's value itself, if it is data of up to 10,000 items and 1 MiB (None,
    #: bool, int, float, str, bytes, lists, dicts with str keys), or a table of up to 10,000 fields
    #: whose library the program has imported; else None. ``Sandbox.get`` reads larger values.
    value: Any = None
    #: The last expression's value as a display, with all its mime types.
    rich_result: Display | None = None
    error: CellError | None = None
    displays: tuple[Display, ...] = ()
    #: The texts that ``name?`` showed. A front end shows them in a pager.
    pages: tuple[str, ...] = ()
    denials: tuple[Denial, ...] = ()
    stop: Stop | None = None
    #: What the OS layer refused, if the cell failed because of that.
    refusal: Refusal | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_calls_left_out: int = 0
    artifacts: tuple[Artifact, ...] = ()
    #: Files that were to be copied out but were not, each with the reason.
    skipped: tuple[Skipped, ...] = ()
    #: None for a cell that did not run.
    usage: Usage | None = None
    #: If the cell did not fail: how the last program of ``!`` that failed ended, as an exit status,
    #: or below 0 as the number of a signal.
    program_status: int = 0
    #: Bytes that were left out of stdout, stderr and displays.
    left_out: Mapping[str, int] = field(default_factory=dict)
    #: What the widgets that the cell displayed show in the end, in words, by their ids. It has only
    #: widgets that changed after they were displayed; a widget that was closed has "".
    widgets: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    execution_count: int = 0
    #: The name of the policy.
    policy: str = ""
    #: The source that was run.
    source: str = ""
    #: For the receipt; None if no sandbox made this result.
    provenance: Provenance | None = field(default=None, repr=False, compare=False)

    @property
    def receipt(self) -> str:
        """The receipt of this result, JSON signed with the user's key (docs/receipts.md).

        Each access signs a new receipt, which says which staged files have been kept by then.
        Raises ReceiptError.
        """
        signed: str = receipts_module().sign(
            self.provenance,
            status=self.status,
            outputs=self.outputs,
            texts={"stdout": self.output, "stderr": self.error_output, "result": self.result},
            artifacts={artifact.name: artifact.sha256 for artifact in self.artifacts},
            tool_calls=self.tool_calls,
            source=self.source,
            execution_count=self.execution_count,
            denials=tuple(denial.rule for denial in self.denials),
            tool_calls_left_out=self.tool_calls_left_out,
        )
        return signed

    @property
    def success(self) -> bool:
        """Whether the cell ran to its end without an exception."""
        return self.status == "ok"

    def to_string(self, limit: int = 8_000) -> str:
        """Return the result as a text from which a language model can correct its cell.

        The text has at most ``limit`` characters. It has how the cell ended and why, the cell's own
        lines of the traceback or the denials with their remedies, and what the cell showed. If
        there is too little room, parts are cut in the middle.
        """
        return text_within(self, limit).text

    def __str__(self) -> str:
        return self.to_string()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the cells.

    ``shape`` is a length ("3"), or the sides of an array or table ("2 by 4"). ``size`` is the
    number of bytes of an array, table, text or number; 0 if it is not known.
    """

    name: str
    type: str
    shape: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A request for the program's approval: a cell wants to import modules, or make one call.

    ``names`` are the names of the modules or of the function. ``args`` and ``kwargs`` are the
    complete arguments of the call, secrets included; a table among them is a table if the program
    has imported its library, else a description in words. ``text`` is the question with names and
    arguments, in lines that can be shown to anybody: long lines are cut, secrets are left out, and
    no character moves a cursor or is invisible. ``offers`` are the answers that allow the request.
    If ``text`` can't show a call completely, ``once`` is not among them.
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
# Printed text has passed the output gateway. A cell's source and the names of its files have not:
# their invisible characters are spelled out here, so that no name begins a line or controls a
# terminal.
#
# Invariant: an unmarked line that reads as a heading is the host's (``render.headings``). Text that
# a cell printed stands beneath its heading as it was printed, and a line of it that reads as a
# heading is marked. Elsewhere a cell's lines are indented, except the first line of a name or
# message, which continues a line of the host's. So a cell that prints "stderr:" or "The cell was
# not run" can't make a reader believe that the host says so.

_PARTS_GAP: Final = "\n\n"
_INDENT: Final = "  "
#: A part that would have fewer characters than this is left out rather than cut.
_MIN_PART: Final = 60
#: At least so many characters at either end of a long text are cleaned, even if a reply has room
#: for fewer: cleaning removes colours and overwritten text (progress bars), so less remains.
_LEAST_CLEANED: Final = 1 << 17
#: Characters of a log, and of the value beside it, unless a framework asks for fewer.
MOST_LOGGED: Final = 1_000_000
#: If displays have more characters together, it is not examined whether each fits in a line.
_MOST_OF_SHORT: Final = 1 << 20
_MAX_FRAMES: Final = 8
_MAX_CAUSES: Final = 3
_MAX_DENIALS: Final = 12
#: Characters of an error's message, and of a rewrite.
_MAX_DETAIL: Final = 2_000
_MAX_NAMES: Final = 10
#: Parts of what a cell showed; the parts after these are joined into one.
_MAX_SHOWN: Final = 24
#: Most characters of a name, and of a display's text that stands in a line with others.
_MAX_NAME: Final = 300
#: Errors that the language layer raises, with remedies in their messages (``guest.violations``).
_OF_POLICY: Final = frozenset(
    {
        "AttributeViolation",
        "ImportViolation",
        "NameViolation",
        "OperationViolation",
        "PolicyViolation",
    }
)
#: Errors that Python's parser raises.
_OF_SYNTAX: Final = frozenset({"IndentationError", "SyntaxError", "TabError"})
#: The place that Python adds to such an error's message. IPython's traceback has the place too.
_PLACE: Final = re.compile(r" \([^()\n]*, line \d+\)\Z")
#: What IPython writes instead of the frames of a SystemExit. It is of no use to a model.
_USE_TB: Final = "An exception has occurred, use %tb to see the full traceback."
#: What IPython writes to stderr then. Neither way to exit works here.
_HOW_TO_EXIT: Final = re.compile(
    r"^[^\n]*: UserWarning: To exit: use 'exit', 'quit', or Ctrl-D\.\n  warn\([^\n]*\n?",
    re.MULTILINE,
)
#: How IPython ends an error without a message.
_NO_MESSAGE: Final = re.compile(r"\A([\w.]+):\s*\Z")
#: How the host's reason for a refusal begins, in an error's message and beneath its traceback.
_REASON: Final = "[cellblock: "
#: A frame of a cell in IPython's traceback: its line, its function, and the lines shown.
_CELL_FRAME: Final = re.compile(
    r"\s*(?:Cell In\[\d+\], line |File <tokenize>:)(\d+)(?:,? in ([^\n]*))?\n?(.*)", re.DOTALL
)
#: A frame of a cell in a traceback that Python itself wrote.
_CELL_FILE: Final = re.compile(
    r'File "[^"\n]*/ipykernel_\d+/\d+\.py", (line \d+)(?:, in <module>)?'
)
#: A frame of a file, and a frame of a library's file.
_FILE_FRAME: Final = re.compile(r"\s*File ")
_LIBRARY_FRAME: Final = re.compile(r'\s*File [^"\n]*:\d+, in ')
#: The lines above the frames of an error: a rule, and the error's type.
_TRACEBACK_HEAD: Final = re.compile(r"-+|\S+ +Traceback \(most recent call last\)")
#: The line of a frame that was being executed.
_ARROW: Final = re.compile(r"^-+> *\d+ ?(.*)$", re.MULTILINE)
#: The lines between two errors, the second of which was raised from, or during, the first.
_CHAINED: Final = {
    "The above exception was the direct cause of the following exception:": Heading.CAUSE,
    "During handling of the above exception, another exception occurred:": Heading.CONTEXT,
}
#: Signs in a source that a program of ``!`` was to use the network.
_OF_NETWORK: Final = re.compile(
    r"://|\b(?:apt|curl|git|nslookup|pip|ping|rsync|scp|ssh|wget)\b", re.IGNORECASE
)
#: The note on a page in frames, which a model can't see.
_UNSEEN: Final = (
    f"{Heading.NOTICE}: an interactive {{what}}, for people with a browser: {{seen}}. "
    "You can see pictures, such as matplotlib's]"
)
_NOT_SEEN = "you can't see it"
_ITS_TEXT = "you see its text alone"
#: Chart libraries that a cell's author knows by another name.
_LIBRARIES: Final = {"vega": "altair"}
_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")
#: The rest of a colour's escape sequence, at the beginning of a text that was cut within it.
_REST_OF_COLOUR: Final = re.compile(r"\A\[?[0-9;:]*[A-Za-z](?=\W)")


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a reply: a text beneath, or behind, its heading.

    A part without a heading belongs to the part before it, or is a card of the host's that opens
    the reply.
    """

    heading: Heading | None
    text: str
    #: If the text was cut: its end, and the number of characters missing before that.
    tail: str = ""
    missing: int = 0

    @staticmethod
    def of(heading: Heading | None, cut: Cut) -> _Part:
        return _Part(heading, cut.head, cut.tail, cut.missing)

    @property
    def cut(self) -> Cut:
        return Cut(self.text, self.tail, self.missing)

    def __len__(self) -> int:
        return len(self.heading or "") + len(self.cut)

    def clipped(self, room: int) -> str:
        heading = self.heading or ""
        if len(heading) >= room:
            return clipped(f"{heading}{self.text}", room)
        return f"{heading}{self.cut.clipped(room - len(heading))}"


@dataclass(frozen=True, slots=True)
class _LazyPart:
    """A part that is cleaned and marked only when ``read`` is called.

    Cleaning takes long for long texts, and a reply may have no room for the part. ``size`` is the
    number of characters before that, or 0 if they need not be counted.
    """

    size: int
    read: Callable[[], _Part]


#: Stands for the last parts if there is no room for them.
_REST: Final = _Part(Heading.REST, "")


class Excerpt(NamedTuple):
    """A result as text, and whether it is whole: nothing of it is cut or left out."""

    text: str
    is_whole: bool


def text_within(result: Result, limit: int) -> Excerpt:
    """Return a result as a text of at most ``limit`` characters.

    If not everything fits, the parts on how the cell ended (its error or its denials) get two
    thirds of the room, and what the cell showed gets the rest. A part that is too long keeps its
    beginning and its end; short parts stay whole. Text that there is no room for isn't cleaned.
    """
    if limit < 1:
        return Excerpt("", is_whole=False)
    text = _text_of_parts(result, limit)
    if result.left_out and not _gap_lines(result.outputs) <= set(text.text.split("\n")):
        # The cut took a line in which the host says how many bytes the policy's caps left out. The
        # note of the cut doesn't count those bytes, so the last line must say "more bytes".
        return _text_of_parts(result, limit, more="more ")
    return text


def _text_of_parts(result: Result, limit: int, more: str = "") -> Excerpt:
    """Return the parts of a result as a text of at most ``limit`` characters.

    ``more`` is put before "bytes" in the line on what the policy's caps left out.
    """
    ending = _ending_parts(result, limit)
    shown_parts = list(_shown_parts(result, limit, more))
    gap = len(_PARTS_GAP)
    is_cut = any(part.missing for part in shown_parts)
    if is_cut or sum(len(part) + gap for part in [*ending, *shown_parts]) - gap > limit:
        # The ending gets two thirds, rounded up, or more if the other parts leave more.
        room_left = limit - sum(len(part) + gap for part in shown_parts)
        texts = _fitted(ending, max(-(-limit * 2 // 3), room_left), min_parts=1)
        texts += _fitted(shown_parts, limit - len(_PARTS_GAP.join([*texts, ""])))
        return Excerpt(_PARTS_GAP.join(texts), is_whole=False)
    whole = _PARTS_GAP.join(part.clipped(limit) for part in [*ending, *shown_parts])
    # `_ending_parts` shows as many denials as there is room for: compare with no limit.
    return Excerpt(
        whole, is_whole=not result.denials or ending == _ending_parts(result, sys.maxsize)
    )


#: A note of the host's that text is missing there.
_GAP: Final = re.compile(
    rf"{re.escape(Heading.NOTICE)} left out |"
    + re.escape(Heading.CUT).replace(re.escape("{number}"), r"[\d,]+")
)


def before_gaps(reply: str) -> dict[str, tuple[int, int]]:
    """Return for stdout and stderr where the first gap in a reply's text of the stream begins.

    A position is a number of lines from the beginning of the stream, and a number of bytes in the
    line there. A stream is absent if the reply has it without a gap, or not at all. Only its first
    part counts, since the position of later parts in the stream isn't known.
    """
    positions = dict[str, tuple[int, int]]()
    headings = set[str]()
    kind, number, previous_line = "", 0, ""
    for line in reply.split("\n"):
        if f"{line}\n" in (Heading.STDOUT, Heading.STDERR):
            kind, number, previous_line = "" if line in headings else line.removesuffix(":"), 0, ""
            headings.add(line)
            continue
        if kind and not line.startswith("\\") and reads_as_heading(line):
            if gap := _GAP.search(line):
                # A note on what the policy's caps left out has a line of its own, and the line
                # before it, where the stream was cut, ends in dots. Notes of this module stand
                # within the line that they cut.
                is_behind = line.startswith(Heading.NOTICE) and previous_line.endswith(Heading.REST)
                partial_line = (
                    previous_line[:-1] if is_behind else line[: gap.start()].removesuffix(" ")
                )
                positions[kind] = number - is_behind, len(partial_line.encode())
            kind = ""
        number, previous_line = number + 1, line
    return positions


def showed_anything(result: Result) -> bool:
    """Return whether a cell printed or displayed something, or ended in a value that is shown.

    An error that was shown without ending the cell counts too.
    """
    texts = (result.output, result.error_output, result.result)
    errors = (output.kind == "error" for output in result.outputs if result.error is None)
    return any(texts) or bool(result.displays or result.pages) or any(errors)


def ending(result: Result, limit: int) -> str:
    """Return how and why a cell ended, without what it showed, in at most ``limit`` characters."""
    return _PARTS_GAP.join(_fitted(_ending_parts(result, limit), limit, min_parts=1))


def _fitted(parts: Sequence[_Part], room: int, *, min_parts: int = 0) -> list[str]:
    """Return the texts of parts that together fit ``room``: short parts whole, others cut equally.

    If the cut parts would be too short to be of use, the last parts are left out, but never the
    first ``min_parts`` parts.
    """
    for number in range(len(parts), min_parts - 1, -1):
        candidates = [*parts[:number], *([_REST] if number < len(parts) else [])]
        rooms = [0] * len(candidates)
        room_left = max(0, room - len(_PARTS_GAP) * max(0, len(candidates) - 1))
        # The shortest part first: what it doesn't need is shared by the longer parts.
        for rank, index in enumerate(
            sorted(range(len(candidates)), key=lambda position: len(candidates[position]))
        ):
            rooms[index] = min(len(candidates[index]), room_left // (len(candidates) - rank))
            room_left -= rooms[index]
        sized = list(zip(candidates, rooms, strict=True))
        if all(size >= min(len(part), _MIN_PART) for part, size in sized):
            return [part.clipped(size) for part, size in sized]
    return [part.clipped(room) for part in parts[:min_parts]]


def _ending_parts(result: Result, limit: int) -> list[_Part]:
    """Return the parts on how the cell ended, with its error or denials.

    Denials are left out if they would have more than ``limit`` characters.
    """
    match result.status:
        case "ok":
            if card := _outcome_text(result):
                return [_Part(None, card)]
            remark = "." if showed_anything(result) else " and showed nothing."
            return [_Part(Heading.RAN, remark), *_failed_program(result)]
        case "denied":
            findings = f"{count(len(result.denials), 'finding')} (policy {result.policy})."
            head = _Part(Heading.NOT_RUN, f": {findings}")
            if result.usage is not None:  # the guest's own check refused it, while it ran
                head = _Part(Heading.STOPPED, f" at: {findings}")
            room = limit - len(head) - len(_PARTS_GAP)
            parts = [head, _Part(None, _denials_text(result.denials, room, result.policy))]
        case "stopped":
            if result.stop is None:
                return [_Part(Heading.STOPPED, ".")]
            frames = _frames([plain(line) for line in result.stop.frames])[0]
            parts = [_Part(None, for_models(result.stop.said)), _Part(None, "\n".join(frames))]
        case _:
            message = _error_message(result)
            parts = [_Part(Heading.NOT_RUN, f": {message}")]
            if result.status == "error" and not _is_no_python(result):
                parts = [_Part(Heading.FAILED, message)]
            if result.error is not None:
                refused = result.refusal is not None
                lines = _traceback(result.error, _error_text(result.error), refused=refused)
                parts.append(_Part(None, "\n".join(lines)))
    return [part for part in parts if part.text]


def _failed_program(result: Result) -> Iterator[_Part]:
    """Yield a part on a program of ``!`` that failed, if one did.

    If the source looks as if the program was to use the network, the part says what the policy
    allows of that: the program's own message rarely does.
    """
    status = result.program_status
    if not status:
        return
    text = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
    policy = result.provenance.policy if result.provenance is not None else None
    network = True if policy is None else policy.network_access
    says_why = status in (126, 127)  # a shell's, of what can't be executed, and is not there
    looks_like_network = not says_why and _OF_NETWORK.search(result.source)
    if policy is not None and network is not True and looks_like_network:
        network_words = "can reach only listed addresses" if network else "have no network"
        text += f". Under policy {policy.name} cells {network_words} (network_access)"
    yield _Part(Heading.PROGRAM, f"{text}.")


def _is_no_python(result: Result) -> bool:
    """Return whether a cell did not run at all because its source can't be parsed.

    A syntax error that the compiler finds after parsing, such as a ``return`` outside a function,
    ends a cell only when its turn comes: that cell counts as failed.
    """
    if result.error is None or result.error.type not in _OF_SYNTAX:
        return False
    return not is_python(result.source)


def _error_text(error: CellError | None) -> str:
    """Return an error's type and message, without the place that a syntax error's message has."""
    has_place = error is not None and error.type in _OF_SYNTAX and error.lines
    return _PLACE.sub("", str(error)) if has_place else str(error)


def _error_message(result: Result) -> str:
    """Return the type and message of the error that ended a cell, to follow a heading.

    If the host wrote or explained the message, its advice is reworded for a model. Any other
    message of a failed cell is the cell's own, and stays as it is.
    """
    message = _continued(_visible_source(_error_text(result.error)).split("\n"))
    explained = result.refusal is not None or (result.error and result.error.type in _OF_POLICY)
    return for_models(message) if result.status != "error" or explained else message


def _outcome_text(result: Result) -> str:
    """Return the text of the card on a state that was restored, as by ``%undo``; else ""."""
    cards = (output.content["data"] for output in result.outputs if output.kind == "display_data")
    return "\n".join(card["text/plain"] for card in cards if OUTCOME_JSON in card)


def _denials_text(denials: Sequence[Denial], room: int, policy: str) -> str:
    """Return as many denials as ``room`` allows, at least one, and the number of the others.

    The lines of a policy file that would allow the denials shown follow in one block.
    """
    texts = list(map(_denial_text, denials[:_MAX_DENIALS]))
    while True:
        hidden = len(denials) - len(texts)
        rest = (
            [f"{Heading.MORE_FINDINGS.format(number=hidden)}{'s' * (hidden > 1)}."]
            if hidden
            else []
        )
        policy_lines = (line for denial in denials[: len(texts)] for line in denial.allows)
        allows = allowing(policy_lines, policy if policy in PRESETS else "").block
        block = [_indented_block(Heading.OPERATOR_ALLOWS, allows)] if allows else []
        text = _PARTS_GAP.join([*texts, *rest, *block])
        if len(text) <= room or len(texts) <= 1:
            return text
        texts.pop()


def _denial_text(denial: Denial) -> str:
    """Return a denial as lines: its place and rule, the reason, the source, and the remedy."""
    has_no_subject = denial.rule in ABOUT_THE_CELL or not denial.subject
    why = denial.why if has_no_subject else f"{denial.subject} {denial.why}"
    heading = Heading.FINDING.format(number=denial.line, rule=denial.rule)
    lines = [visible(f"{heading}{why}".rstrip())]
    if denial.excerpt.strip():
        lines.append(f"    {_visible_line(denial.excerpt)}")
    if denial.remedy:
        lines.append(f"{_INDENT}{Heading.INSTEAD}{visible(for_models(denial.remedy))}")
    return "\n".join([*lines, *_indented(denial.rewrite)])


def _indented_block(head: str, lines: Sequence[str]) -> str:
    return "\n".join([head, *(f"    {visible(line)}" for line in lines)])


def _visible_line(line: str) -> str:
    """Return a line of a cell's with all characters spelled out that could control a terminal.

    Newlines in it are spelled out too.
    """
    return verbatim_lines(line.strip().replace("\n", "␊").expandtabs(4))


def _visible_source(text: str) -> str:
    """Return lines of a cell's like ``_visible_line``, but with their newlines and indentation."""
    return verbatim_lines(text.expandtabs(4))


def _indented(text: str) -> list[str]:
    block = visible_lines(clipped(text, _MAX_DETAIL).expandtabs(4))
    return [textwrap.indent(block, "    ")] if text else []


def _continued(lines: Sequence[str]) -> str:
    """Return a cell's lines, to follow a heading in its line: all but the first are indented."""
    return f"\n{_INDENT}".join(lines)


def _traceback(error: CellError, message: str, *, refused: bool) -> Iterator[str]:
    """Yield lines on the cell's frames, on the rest of the error's text, and on earlier errors.

    ``message`` is the error's type and message, which the reply has shown already, so the rest is
    the text beyond it. With ``refused`` it includes the host's reason. Each error that this error
    was raised from, or during the handling of, gets a line with the host's heading, and its frames.
    """
    chained = list[tuple[Heading, list[str]]]()
    texts = list[str]()
    for text in map(plain, error.lines):
        if (heading := _CHAINED.get(text.strip())) is not None:
            chained.append((heading, texts))
            texts = []
        else:
            texts.append(text)
    frames, tail = _frames(texts)
    yield from frames
    whole = error.traceback
    if not frames and texts and texts[0].strip() == _USE_TB:
        whole = _beyond_message("\n".join(texts[1:]), message, refused=refused)
    rest = _beyond_message(tail, message, refused=refused) if frames else whole
    if rest.strip() == error.message.strip():  # an error of the host's, which has no more to show
        rest = ""
    # The rest may be the source line of a syntax error, so newlines and indentation stay as they
    # are in the traceback.
    if rest.strip("- \n"):
        yield textwrap.indent(_visible_source(_CELL_FILE.sub(r"\1", rest)), _INDENT)
    if frames:
        for heading, texts in chained[: -_MAX_CAUSES - 1 : -1]:
            frames, tail = _frames(texts)
            earlier = _visible_source(clipped(_NO_MESSAGE.sub(r"\1", tail.strip()), _MAX_DETAIL))
            if earlier == message and not any(map(_CELL_FRAME.match, texts)):
                continue  # a library raised its own error again with the same words
            yield _continued(f"{heading}{earlier}".split("\n"))
            yield from frames


def _beyond_message(text: str, message: str, *, refused: bool) -> str:
    """Return the lines of an error's text that follow its message.

    If the call was ``refused``, the host has added its reason to the end of ``message``, and to the
    text: below the traceback, or at the end if IPython made no traceback. The reason is left out of
    the returned lines.
    """
    if refused:
        text = _without_reason(text)
    lines = _NO_MESSAGE.sub(r"\1", text.strip("\n")).split("\n")
    position = 0
    number = 0
    while (
        number < len(lines)
        and position < len(message)
        and message.startswith(lines[number].strip(), position)
    ):
        position += len(lines[number].strip())
        while message[position : position + 1].isspace():
            position += 1
        number += 1
    if refused and message[position:].removeprefix(": ").startswith(_REASON):
        return "\n".join(line for line in lines[number:] if not line.startswith(_REASON))
    return (
        "\n".join(lines[number:])
        if position >= len(message)
        else text.replace(message, "").strip("\n")
    )


def _without_reason(text: str) -> str:
    """Return a text without the host's reason for a refusal, if the text ends with that."""
    before, reason, rest = text.rpartition(_REASON)
    ends = reason and "\n" not in rest.rstrip() and rest.rstrip().endswith("]")
    return before.rstrip() if ends else text


def _frames(texts: Sequence[str]) -> tuple[list[str], str]:
    """Return lines on the cell's own frames in an error's traceback, and the text after the frames.

    ``texts`` are the parts of the traceback. If no frame is the cell's, as when a value is
    formatted after the cell's code has run, the innermost frame of a library is shown. The text
    after the frames may be the source of a syntax error, in the cell or in code that it parsed.
    """
    frames = list[str]()
    tail = list[str]()
    library = ""
    for number, text in enumerate(texts, 1):
        is_last = number == len(texts)
        if (frame := _CELL_FRAME.match(text)) is not None:
            location = f"  line {frame[1]}" + (
                f", in {_visible_line(frame[2])}" if frame[2] else ""
            )
            line = _ARROW.search(frame[3])
            frame_text = frame[3].strip("\n")
            source = line[1] if line else "" if is_last or "\n" in frame_text else frame_text
            frames.append(f"{location}: {_visible_line(source)}" if source else location)
            tail = [] if source else [frame[3]]
        elif (_FILE_FRAME.match(text) and not is_last) or _TRACEBACK_HEAD.fullmatch(text):
            if _LIBRARY_FRAME.match(text):
                library = clipped(_visible_line(text.strip("\n").partition("\n")[0]), _MAX_NAME)
            tail = []
        else:
            tail.append(text)
    if library and not frames:
        frames = [f"  {library}"]
    left_out = ["  …"] * (len(frames) > _MAX_FRAMES)
    return frames[:1] + left_out + frames[1:][1 - _MAX_FRAMES :], "\n".join(tail)


def _shown_parts(result: Result, limit: int = sys.maxsize, more: str = "") -> Iterator[_Part]:
    """Yield parts on what the cell showed, in order, and then on pages, notices, gaps and files.

    A part that is longer than ``limit`` has at least ``limit`` characters of either end. ``more``
    is put before "bytes" in the line on what the policy's caps left out.
    """
    if late := result.late_output.strip() and result.late_output:
        yield _Part.of(Heading.LATE, _beneath_heading(late, limit, _gap_lines(result.outputs)))
    parts = list(_parts_in_order(result, limit))
    if len(parts) > _MAX_SHOWN:  # if each of many parts had its share, nothing of it would be left
        yield from (part.read() for part in parts[: _MAX_SHOWN - 1])
        yield _merged_part(parts[_MAX_SHOWN - 1 :], limit)
    else:
        yield from (part.read() for part in parts)
    if (pages := _pages_part(result, limit)).text:
        yield pages
    for line in result.notices:
        yield _Part(Heading.NOTICE, for_models(line.removeprefix(Heading.NOTICE)))
    if lines_left_out := left_out(result, more):
        yield _Part(Heading.LEFT_OUT, lines_left_out.removeprefix(Heading.LEFT_OUT))
    copied = [
        (artifact.name, f" ({artifact.content_type}, {size(artifact.size_bytes)})")
        for artifact in result.artifacts
    ]
    skipped = [(file.name, f": {file.why}") for file in result.skipped]
    for heading, files in ((Heading.COPIED, copied), (Heading.NOT_COPIED, skipped)):
        lines = [clip(visible(name), _MAX_NAME) + visible(about) for name, about in files]
        if lines:
            yield _Part(heading, f"{_name_list(lines)}.")


def _merged_part(parts: Sequence[_LazyPart], limit: int) -> _Part:
    """Return parts as one part: the other parts' headings are lines of its text."""
    first = parts[0].read()

    def make(number: int) -> Cut:
        if not number:
            return first.cut
        part = parts[number].read()
        return Cut(f"{part.heading or ''}{part.text}", part.tail, part.missing)

    return _Part.of(
        first.heading, joined([lazy_part.size for lazy_part in parts], make, _PARTS_GAP, limit)
    )


def _lazy_part(heading: Heading, text: str, limit: int, hosts: Collection[str] = ()) -> _LazyPart:
    """Return a part of text that a cell printed; see ``_beneath_heading``."""
    return _LazyPart(len(text), lambda: _Part.of(heading, _beneath_heading(text, limit, hosts)))


def _beneath_heading(text: str, limit: int, hosts: Collection[str] = ()) -> Cut:
    """Return a cell's text cleaned and marked, to stand beneath a heading.

    It has at least ``limit`` characters of either end. ``hosts`` are lines in it that the host
    wrote, which stay unmarked.
    """
    unstyled = _without_styles(text.rstrip("\n"), limit).stripped()
    return unstyled.to(limit).each(functools.partial(beneath, hosts=hosts)).stripped()


def _without_styles(text: str, limit: int) -> Cut:
    """Return a text without colours, and without text that was overwritten in its line.

    A long text is cut first, to more than a reply of ``limit`` characters has room for.
    """
    cut = Cut(text).to(max(limit, _LEAST_CLEANED))
    if cut.missing:  # the cut may have split a colour's escape sequence
        cut = Cut(split_tail(cut.head)[0], _REST_OF_COLOUR.sub("", cut.tail), cut.missing)
    return cut.each(without_styles)


def _pages_part(result: Result, limit: int = sys.maxsize) -> _Part:
    """Return the part of what ``name?`` showed; its text is empty if the cell asked for nothing."""
    pages = _PARTS_GAP.join(result.pages).strip("\n")
    return _Part.of(Heading.PAGES, _beneath_heading(pages if pages.strip() else "", limit))


def _beside_the_error(error: CellError | None, stderr: str) -> str:
    """Return the text of stderr without IPython's lines on the error that ended the cell."""
    if error is not None and error.type == "UsageError" and plain(stderr).strip() == str(error):
        return ""
    is_exit = error is not None and error.type == "SystemExit"
    return _HOW_TO_EXIT.sub("", stderr) if is_exit else stderr


def _parts_in_order(result: Result, limit: int) -> Iterator[_LazyPart]:
    """Yield parts on what the cell showed, in order.

    Text that was printed between two displays is one part for each stream. Displays with no text
    between them are one part.
    """
    gaps = _gap_lines(result.outputs)
    printed = {Heading.STDOUT: list[str](), Heading.STDERR: list[str]()}
    displays = list[Display]()
    texts_of = dict[int, str]()

    for item in (*_items_shown(result), None):  # None, at the end, yields what was collected
        if isinstance(item, _Text):
            printed[item.heading].append(item.text)
            continue
        whole = [(heading, "".join(pieces)) for heading, pieces in printed.items()]
        whole[1] = Heading.STDERR, _beside_the_error(result.error, whole[1][1])
        texts = [(heading, text) for heading, text in whole if text.strip()]
        together = not texts and isinstance(item, Display) and not item.by_host
        if displays and not together:  # they came before the text that was printed
            yield _displayed(displays, texts_of, limit)
            displays = []
        for heading, text in texts:
            yield _lazy_part(heading, text, limit, gaps)
        for pieces in printed.values():
            pieces.clear()
        match item:
            case Display(by_host=True):
                yield _LazyPart(0, functools.partial(_card_part, item, limit))
            case Display():
                displays.append(item)
            case _ResultShown(display) if (part := _result_part(display, limit)).text.strip():
                yield _LazyPart(len(part), functools.partial(_unchanged, part))
            case _ErrorShown():
                yield _LazyPart(0, functools.partial(_Part, item.heading, item.text))


@dataclass(frozen=True, slots=True)
class _Text:
    """Text that a cell printed to stdout or stderr, as the heading says."""

    heading: Heading
    text: str


@dataclass(frozen=True, slots=True)
class _ResultShown:
    """The value of an expression, as the cell showed it."""

    display: Display


@dataclass(frozen=True, slots=True)
class _ErrorShown:
    """An error that was shown and did not end the cell.

    ``of_display`` says that a formatter raised it for an object that was to be displayed.
    """

    error: CellError
    of_display: bool
    #: The name of the object that was not displayed, if it has one.
    name: str = ""

    @property
    def heading(self) -> Heading:
        return Heading.NOT_DISPLAYED if self.of_display else Heading.RAISED

    @property
    def text(self) -> str:
        """The error's type and message, and the cell's own lines that raised it."""
        prefix = f"{_visible_line(self.name)}: " if self.name else ""
        whole = _visible_source(clipped(_error_text(self.error), _MAX_DETAIL))
        message = (for_models(whole) if _REASON in whole else whole).split("\n")
        texts = list[str]()
        for text in map(plain, self.error.lines):
            texts = [] if text.strip() in _CHAINED else [*texts, text]
        frames, _ = _frames(texts)
        return "\n".join([f"{prefix}{_continued(message)}", *frames])


_Shown = _Text | Display | _ResultShown | _ErrorShown


def displays_in_order(result: Result) -> Iterator[Display]:
    """Yield displays, and values that were shown, in the order in which ``to_string`` has them."""
    for item in _items_shown(result):
        if isinstance(item, Display):
            yield item
        elif isinstance(item, _ResultShown):
            yield item.display


def _items_shown(result: Result) -> Iterator[_Shown]:
    """Yield what a cell showed, in order."""
    return (
        _items_in_order(result, _outputs_of_cell(result.outputs))
        if result.outputs
        else _items_of_fields(result)
    )


def _items_of_fields(result: Result) -> Iterator[_Shown]:
    """Yield what the fields of a result say that the cell showed: a program made it by hand."""
    yield _Text(Heading.STDOUT, result.output)
    yield _Text(Heading.STDERR, result.error_output)
    if result.result is not None:
        yield _ResultShown(result.rich_result or Display({_PLAIN: result.result}))
    yield from sorted(result.displays, key=lambda display: not display.by_host)


def _outputs_of_cell(outputs: Iterable[Output]) -> list[Output]:
    """Return outputs without cellblock's own cards and notices, and without late output."""
    return [output for output in outputs if not (output.ours or output.late or output.is_notice)]


def _items_in_order(result: Result, outputs: Iterable[Output]) -> Iterator[_Shown]:
    """Yield what a cell showed, in order; ``outputs`` are some or all of the result's outputs.

    The error that ended the cell is left out. If a formatter failed, the display that follows may
    have nothing but the object's name: then the name becomes part of the error.
    """
    failed = list[_ErrorShown]()
    for item in _items_of_transcript(result, outputs):
        if isinstance(item, _ErrorShown) and item.of_display:
            failed.append(item)
            continue
        is_name = bool(failed) and isinstance(item, Display) and _only_names(item)
        if is_name:
            failed[-1] = replace(failed[-1], name=str(item).strip())
        yield from failed
        failed.clear()
        if not is_name:
            yield item
    yield from failed


def _items_of_transcript(result: Result, outputs: Iterable[Output]) -> Iterator[_Shown]:
    """Yield what is left of the outputs once updates and ``clear_output`` are applied, in order.

    The error that ended the cell is left out, and so is an error with the type and message of
    another, unless a formatter raised it. A widget that was closed is left out, too.
    """
    transcript = Transcript()
    hosts = set[int]()
    of_display = set[int]()
    for output in outputs:
        # A transcript keeps the very bundles and tracebacks of the outputs, so their identities
        # tell afterwards which of them the host, or a formatter, made.
        if output.by_host and "data" in output.content:
            hosts.add(id(output.content["data"]))
        if output.is_of_display:
            of_display.add(id(output.content["traceback"]))
        transcript.apply(output)
    final_outputs = transcript.outputs()
    errors = [entry for entry in final_outputs if entry["output_type"] == "error"]
    shown_before = {
        _type_and_message(entry) for entry in errors if id(entry["traceback"]) in of_display
    }
    if result.error is not None:
        shown_before.add((result.error.type, result.error.message))
    for entry in final_outputs:
        match entry["output_type"]:
            case _ if "data" in entry and shown_at_the_end(entry["data"], result.widgets) is None:
                continue
            case "stream":
                name = Heading.STDERR if entry["name"] == "stderr" else Heading.STDOUT
                yield _Text(name, entry["text"])
            case "error":
                error = _cell_error(entry)
                fails = id(entry["traceback"]) in of_display
                own = result.error is not None and error.lines == result.error.lines
                if not own and (fails or _type_and_message(entry) not in shown_before):
                    shown_before.add(_type_and_message(entry))
                    yield _ErrorShown(error, of_display=fails)
            case kind:
                by_host = id(entry["data"]) in hosts
                data = shown_at_the_end(entry["data"], result.widgets) or {}
                display = Display(data, entry["metadata"], by_host=by_host)
                yield _ResultShown(display) if kind == "execute_result" else display


def _type_and_message(error: Mapping[str, Any]) -> tuple[str, str]:
    return error["ename"], plain(error["evalue"])


def left_out(result: Result, more: str = "") -> str:
    """Return lines on what the policy's caps left out of a cell's output, one for each kind.

    ``more`` is put before "bytes".
    """
    return "\n".join(
        f"{Heading.LEFT_OUT}{count(number, f'{more}byte')} of {kind} ({kind}_max_bytes)."
        for kind, number in result.left_out.items()
    )


def _displayed(displays: Sequence[Display], texts: dict[int, str], limit: int) -> _LazyPart:
    """Return displays as one part: in one line if each has a short line, else one after the other.

    ``texts`` is the cache of the readable texts, by the bundle's identity: many displays may share
    a bundle.
    """
    for display in displays:
        if id(display.data) not in texts:
            texts[id(display.data)] = readable(display.data)
    sizes = [len(texts[id(display.data)]) for display in displays]

    def read_one(number: int) -> tuple[Display, Cut, frozenset[str]]:
        display = displays[number]
        cut, hosts = _clean_text(display, texts[id(display.data)].strip("\n").rstrip(), limit)
        return display, cut if cut.missing else Cut(cut.head.strip("\n").rstrip()), hosts

    def make(number: int) -> Cut:
        display, cut, hosts = read_one(number)
        marked = cut.to(limit).each(functools.partial(beneath, hosts=hosts))
        return _display_text(display, marked)

    def read() -> _Part:
        if sum(sizes) <= _MOST_OF_SHORT:
            cuts = [_display_text(*read_one(number)[:2]) for number in range(len(displays))]
            if all(len(line) <= _MAX_NAME and len(line.head.splitlines()) <= 1 for line in cuts):
                names = [verbatim_lines(line.head.strip()) for line in cuts]
                return _Part(Heading.DISPLAYED, _name_list(names))
        return _Part.of(Heading.DISPLAYED_TEXTS, joined(sizes, make, _PARTS_GAP, limit))

    return _LazyPart(sum(sizes), read)


def _clean_text(display: Display, text: str, limit: int) -> tuple[Cut, frozenset[str]]:
    """Return the text of a display, cleaned for a model, and the lines in it that are the host's.

    ``text`` is the display's readable text. The first line of a card is the host's, and so are all
    lines of a card on a state that was restored. For a page that needs a browser, a note says that
    the model can't see it, unless the display also has a picture.
    """
    cut = _without_styles(text, limit)
    own = own_lines(display.data)
    if display.by_host:
        lines = [*cut.head.split("\n"), *cut.tail.split("\n")]
        return cut, own | set(lines if OUTCOME_JSON in display.data else lines[:1])
    if own:
        cut = cut.each(
            lambda part: "\n".join(
                for_models(line) if line in own else line for line in part.split("\n")
            )
        )
    hosts = set(map(for_models, own))
    page = display.data.get(_HTML)
    if isinstance(page, Frame) and not _pictures(display):
        library = page.library.partition("-")[0]
        page_kind = f"figure of {_LIBRARIES.get(library, library)}" if library else "page"
        has_its_text = bool(text) and text.strip() != str(display).strip()
        note = _UNSEEN.format(what=page_kind, seen=_ITS_TEXT if has_its_text else _NOT_SEEN)
        hosts.add(note)
        end = (cut.tail if cut.missing else cut.head).removesuffix("\n")
        end = f"{end}\n{note}" if end else note
        cut = Cut(cut.head, end, cut.missing) if cut.missing else Cut(end)
    return cut, frozenset(hosts)


def _pictures(display: Display) -> list[str]:
    return [kind for kind in display.data if kind.startswith("image/")]


def _display_text(display: Display, cut: Cut) -> Cut:
    """Return the text of a display, with its other mime types above or before it.

    HTML is not named if the text has several lines: such a display is a table, and says the same
    in both.
    """
    several = bool(cut.missing) or len(cut.head.splitlines()) > 1
    unnamed = {_PLAIN, _HTML} if several else {_PLAIN}
    kinds = [kind for kind in display.data if kind not in unnamed]
    if cut and not kinds:
        return cut
    kinds_note = f"<{', '.join(kinds) or 'nothing'}>"
    if several:
        return Cut(f"{kinds_note}\n{cut.head}", cut.tail, cut.missing)
    return Cut(f"{kinds_note} {cut.head.strip()}".rstrip())


def _marked_text(display: Display, limit: int) -> Cut:
    """Return the text of a display, cleaned and marked, with ``limit`` characters of either end."""
    cut, hosts = _clean_text(display, readable(display.data), limit)
    return cut.to(limit).each(functools.partial(beneath, hosts=hosts)).stripped()


def _card_part(display: Display, limit: int) -> _Part:
    return _Part.of(Heading.CARD, _marked_text(display, limit))


def _result_part(display: Display, limit: int) -> _Part:
    cut = _marked_text(display, limit)
    return _Part.of(Heading.RESULT, Cut(_result_text(display, cut.head), cut.tail, cut.missing))


def _unchanged(part: _Part) -> _Part:
    return part


def _result_text(display: Display, text: str) -> str:
    """Return the text of a value, with the mime types of its pictures before it."""
    pictures = _pictures(display)
    return f"<{', '.join(pictures)}> {text}" if pictures else text


def _only_names(display: Display) -> bool:
    """Return whether a display has nothing but an object's name, such as ``<Figure …>``."""
    return set(display.data) <= {_PLAIN} and is_name(str(display))


def _name_list(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return "; ".join([*names[:_MAX_NAMES], *([f"and {more:,} more"] if more > 0 else [])])


def plain(text: str) -> str:
    """Return ``text`` without a terminal's colours."""
    return _COLOUR.sub("", text)


def clipped(text: str, room: int) -> str:
    """Return ``text``, or its beginning and its end in at most ``room`` characters.

    See ``Cut.clipped``.
    """
    return Cut(text).clipped(room)


# --- from a cell that has ended to its result -----------------------------------------------------


def result_of(
    run: CellRun,
    content: Mapping[str, Any],
    outputs: tuple[Output, ...],
    late: Iterable[Output],
    left_out: Mapping[str, int],
    views: Views,
    session: str,
    origin: Origin | None,
    *,
    widgets: Mapping[str, str],
) -> Result:
    """Return the result of a cell that has ended. Called by ``SandboxFront``.

    ``content`` is the content of Jupyter's ``execute_reply``. ``late`` is text that earlier cells
    printed since the last result. ``left_out`` has the number of bytes that the policy's caps left
    out, by kind. ``session`` is the session's name in the audit log, and ``origin`` the session
    that its variables were copied from by a fork.
    """
    outcome = run.outcome
    exported = run.exported
    failed = content["status"] != "ok"
    transcript = _transcript(outputs)
    final_outputs = transcript.outputs()
    displays = _displays(transcript, final_outputs, outputs)
    status: Status = "ok" if not failed else "failed" if views.failed else "refused"
    if failed and not views.failed and outcome is not None:
        status = outcome.status
    rich = next((display for kind, display in displays if kind == "execute_result"), None)
    stopped = outcome.stopped if outcome is not None else None
    calls = outcome.tool_calls if outcome is not None else None
    return Result(
        status=status,
        output=_stream_text(final_outputs, "stdout"),
        error_output=_stream_text(final_outputs, "stderr"),
        late_output="".join(text_output.content["text"] for text_output in late),
        notices=tuple(_notice(text_output) for text_output in outputs if text_output.is_notice),
        result=str(rich) if rich is not None else None,
        value=_value(outcome) if status == "ok" and outcome is not None else None,
        rich_result=rich,
        error=_cell_error(content) if failed else None,
        displays=tuple(display for kind, display in displays if kind == "display_data"),
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
        program_status=outcome.program_status if outcome is not None else 0,
        left_out=dict(left_out),
        widgets=widgets,
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
    """Return the decoded value of a cell that ran; None if its guest sent none that is valid."""
    try:
        return arrays.checked_small(outcome.value)
    except ValueError:
        return None


def _transcript(outputs: Iterable[Output]) -> Transcript:
    """Return what a cell shows in the end.

    Outputs that an output widget captured are included, because a result shows no widgets.
    """
    transcript = Transcript()
    for output in _outputs_of_cell(outputs):
        transcript.apply(output)
    return transcript


def logged(result: Result, room: int = MOST_LOGGED) -> str:
    """Return what a cell printed and displayed, and what the host added, as a text in that order.

    For agent frameworks that show their model a log, and then the cell's value, which
    ``value_text`` returns. No line of the cell's reads as a line of the host's. The last line ends
    with a newline. A log of more than ``room`` characters keeps its beginning and its end, and
    repeats at the end what the policy's caps left out, since the line on that may be cut away.
    Little more of the outputs than is returned is cleaned.
    """
    parts = list(_logged_parts(result, room))
    log = joined(
        [part.size for part in parts], lambda number: _log_text(parts[number].read()), "", room
    )
    cap_note = left_out(result)
    behind = f"\n{cap_note}\n" if cap_note and (log.missing or len(log) > room) else ""
    return log.clipped(room - len(behind)) + behind if len(behind) < room else log.clipped(room)


def _logged_parts(result: Result, limit: int) -> Iterator[_LazyPart]:
    """Yield the parts of a log, each with at least ``limit`` characters of either end."""
    gaps = _gap_lines(result.outputs)
    outputs = list[Output]()
    for output in result.outputs:
        if output.late:
            continue
        if output.is_notice:  # it is not part of the cell's own stream
            bundle = {"data": {_PLAIN: _notice(output)}, "metadata": {}}
            outputs.append(Output("display_data", bundle, output.metadata))
        elif not output.ours or OUTCOME_JSON in output.content["data"]:
            # Of cellblock's cards, only those on a restored state. The others are for the program:
            # gaps in enforcement, and the files that were copied out.
            outputs.append(output)
    if late := result.late_output.strip() and result.late_output:
        yield _LazyPart(
            len(late), functools.partial(_printed_part, Heading.LATE, late, limit, gaps)
        )
    for item in _items_in_order(result, outputs):
        match item:
            case _Text(text=text):
                yield _LazyPart(
                    len(text), functools.partial(_printed_part, None, text, limit, gaps)
                )
            case Display():
                yield _LazyPart(_length(item), functools.partial(_logged_display, item, limit))
            case _ErrorShown(error=error):
                size = len(error.message) + 1
                yield _LazyPart(size, functools.partial(_logged_error, item))
    last_parts = [_pages_part(result, limit), *_failed_program(result)]
    yield from (
        _LazyPart(len(part), functools.partial(_unchanged, part))
        for part in last_parts
        if part.text
    )


def _length(display: Display) -> int:
    """Return about how long a display's text is, without extracting it from HTML."""
    return 1 + max(
        (len(value) for value in display.data.values() if isinstance(value, str)), default=0
    )


def _logged_error(error: _ErrorShown) -> _Part:
    return _Part(error.heading, error.text)


def _printed_part(heading: Heading | None, text: str, limit: int, hosts: Collection[str]) -> _Part:
    """Return printed text as a part of a log, with the newline at its end if it has one."""
    cut = _without_styles(text, limit).to(limit).each(functools.partial(beneath, hosts=hosts))
    if text.endswith("\n"):  # `beneath` drops it
        cut = Cut(cut.head, f"{cut.tail}\n", cut.missing) if cut.missing else Cut(f"{cut.head}\n")
    return _Part.of(heading, cut)


def _log_text(part: _Part) -> Cut:
    """Return a part with a newline at its end, unless it is empty."""
    head, tail = f"{part.heading or ''}{part.text}", part.tail
    if part.missing:
        return Cut(head, _with_newline(tail), part.missing)
    return Cut(_with_newline(head))


def _with_newline(text: str) -> str:
    """Return ``text`` with a newline at its end, unless it is empty."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def value_text(result: Result, room: int = MOST_LOGGED) -> str | None:
    """Return the text of a cell's value, as ``to_string`` has it; None if the cell has no value.

    A text of more than ``room`` characters keeps its beginning and its end.
    """
    if result.result is None:
        return None
    display = result.rich_result or Display({_PLAIN: result.result})
    data = shown_at_the_end(display.data, result.widgets) or {}
    cut = _clean_text(replace(display, data=data), readable(data), room)[0].to(room)
    cut = Cut(_result_text(display, cut.head), cut.tail, cut.missing)
    return cut.each(verbatim_lines).clipped(room)


def _logged_display(display: Display, limit: int) -> _Part:
    """Return a display as a part of a log.

    A card of the host's stands beneath a heading, unless it begins with one: names that the cell
    chose may be in it, so the reader must know whose lines they are.
    """
    cut = _marked_text(display, limit)
    if display.by_host:
        has_heading = reads_as_heading(cut.head.partition("\n")[0])
        return _Part.of(None if has_heading else Heading.CARD, cut)
    return _Part.of(None, cut) if cut else _Part(Heading.DISPLAYED, f"<{', '.join(display.data)}>")


def _gap_lines(outputs: Iterable[Output]) -> frozenset[str]:
    """Return the lines that the host put into a cell's streams, on what is left out there."""
    texts = (without_styles(output.content["text"]) for output in outputs if output.is_gap)
    lines = (line for text in texts for line in text.splitlines())
    return frozenset(line for line in lines if line.startswith(Heading.NOTICE))


def _notice(output: Output) -> str:
    return visible(plain(output.content["data"][_PLAIN]))


def _stream_text(outputs: Sequence[Mapping[str, Any]], name: str) -> str:
    return "".join(output["text"] for output in outputs if output.get("name") == name)


def _displays(
    transcript: Transcript, final_outputs: Sequence[Mapping[str, Any]], outputs: Sequence[Output]
) -> list[tuple[str, Display]]:
    """Return displays and the result, each with the type of its output."""
    # A transcript keeps the very bundles of the outputs, so identity tells which are the host's.
    hosts = {
        id(output.content["data"])
        for output in outputs
        if output.by_host and "data" in output.content
    }
    ids = {
        position: name for name, positions in transcript.displays.items() for position in positions
    }
    return [
        (
            output["output_type"],
            Display(
                output["data"],
                output["metadata"],
                ids.get(position),
                by_host=id(output["data"]) in hosts,
            ),
        )
        for position, output in enumerate(final_outputs)
        if "data" in output
    ]


def _cell_error(content: Mapping[str, Any]) -> CellError:
    """Return the error in the content of a reply or of an ``error`` output."""
    lines = tuple(content.get("traceback", ()))
    message = plain(content.get("evalue", ""))
    traceback = plain("\n".join(lines))
    return CellError(content.get("ename", ""), message, traceback, lines)


def _denial(finding: Finding) -> Denial:
    return Denial(**{name: getattr(finding, name) for name in Denial.__slots__})


def _stop(stopped: Stopped, content: Mapping[str, Any], views: Views) -> Stop:
    state: Any = "kept" if stopped.kept else "gone" if stopped.restored is None else "restored"
    message = plain("\n".join(content.get("traceback", ())))
    limit = cell_status.stop_reason(stopped, views.in_force)[1]
    frames = cell_status.frames(stopped)
    return Stop(stopped.why, limit, state, message, frames)


def _tool_call(record: CallRecord) -> ToolCall:
    fields = record.as_dict()
    error = fields.get("error")
    return ToolCall(
        name=fields["name"],
        args=tuple(fields["args"]),
        kwargs=fields["kwargs"],
        status=record.status,
        seconds=fields["seconds"],
        result=fields.get("result"),
        error=(error["type"], error["message"]) if error is not None else None,
        tokens=record.tokens,
    )
