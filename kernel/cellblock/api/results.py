"""The result of a cell: frozen values, cleaned and bounded like all output of a guest.

``result_of`` makes one of a cell that has ended, ``Result.to_string`` makes text of it from which
a language model can correct its cell.
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
    """Something rich that a cell showed: mime types to text or JSON data."""

    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    #: The id under which a cell updates it.
    display_id: str | None = None
    #: Whether it is a table or a card of the host's, such as that of ``%changes``.
    by_host: bool = False

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

    ``remedy`` is what to do in the cell, ``rewrite`` a line or two that do the same with an
    operation that the policy grants. ``allows`` are lines of a policy file that would allow it.
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
    """A cell that was ended from outside.

    ``why`` is ``timeout``, ``cpu``, ``memory``, ``mapped``, ``forks``, ``scratch``, ``files``,
    ``folders``, ``deep``, ``locked``, ``interrupt``, ``crash``, ``violation``, ``breach`` or
    ``silent``; ``limit`` is the limit it was over, in words. ``state`` says what became of the
    variables.
    """

    why: str
    limit: str
    state: Literal["kept", "restored", "gone"]
    said: str
    #: Where the cell was that was interrupted, in its guest's words: lines of a traceback.
    frames: tuple[str, ...] = ()


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
    representation of its last expression's value. ``notices`` are lines of the host's.
    ``outputs`` has everything, in order.
    """

    status: Status
    output: str = ""
    error_output: str = ""
    #: What was printed, to either, since the cell before it ended, by what earlier cells left
    #: running: threads, tasks, programs. While this cell runs, that is what their tasks print, and
    #: threads that run a function of theirs; of others nobody knows, and it is in ``output``.
    late_output: str = ""
    #: What the host said of the cell beside its outcome, such as what was left out: a line each.
    notices: tuple[str, ...] = ()
    result: str | None = None
    #: That value itself, where it is a table of up to 10,000 fields, of a library that the program
    #: has imported; or data of up to 10,000 items and 1 MiB: None, bool, int, float,
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
    #: How the last program that ``!`` ran and that failed ended, in a cell that did not fail: its
    #: exit status, or the number of a signal below 0.
    program_status: int = 0
    #: Bytes that were left out of stdout, stderr and displays.
    left_out: Mapping[str, int] = field(default_factory=dict)
    #: What widgets that it displayed show in the end, in words and by their ids, where that changed
    #: since; nothing for one that was closed.
    widgets: Mapping[str, str] = field(default_factory=dict)
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
        return text_within(self, limit).said

    def __str__(self) -> str:
        return self.to_string()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the user's: ``shape`` is a length, or the sides of an array or table.

    ``size`` is the bytes of an array, table, text or number; 0 where that is not known.
    """

    name: str
    type: str
    shape: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a cell may do only if the program says so: import modules, or make one call.

    ``names`` are the modules', or the function's, whose arguments are whole in ``args`` and
    ``kwargs``, secrets too: tables as what they are where the program has imported their library,
    else in words. ``text`` is the question with all of that, in lines that can be shown
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
# Invariant: a line that reads as a heading is the host's (``render.headings``). What a cell printed
# stands beneath its heading as it was printed, and a line of it that reads as one is marked.
# Elsewhere a cell's lines are indented, all but the first of a name or message that goes on in a
# line of the host's. So no cell can print "stderr:" or "The cell was not run" and have it read as
# what the host says.

_PARTS_GAP: Final = "\n\n"
_INDENT: Final = "  "
#: Characters below which a part is left out rather than cut.
_MIN_PART: Final = 60
#: Characters of either end of a text that are looked at, if a reply has room for fewer: its colours
#: take some, and what was written over in a line.
_MOST_READ: Final = 1 << 17
#: Characters of a log, and of a value in it, unless a framework reads fewer.
MOST_LOGGED: Final = 1_000_000
#: Characters of displays of which each may be short.
_MOST_OF_SHORT: Final = 1 << 20
_MAX_FRAMES: Final = 8
_MAX_CAUSES: Final = 3
_MAX_DENIALS: Final = 12
#: Characters of a difference, and of what to write instead.
_MAX_DETAIL: Final = 2_000
_MAX_NAMES: Final = 10
#: Parts of what a cell showed; those beyond are one.
_MAX_SHOWN: Final = 24
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
#: What Python adds to the message of one: IPython's text has the file's name and the line, too.
_PLACE: Final = re.compile(r" \([^()\n]*, line \d+\)\Z")
#: What IPython says in place of the frames of a SystemExit: no model has a use for it.
_USE_TB: Final = "An exception has occurred, use %tb to see the full traceback."
#: And what it says on stderr: neither works here.
_HOW_TO_EXIT: Final = re.compile(
    r"^[^\n]*: UserWarning: To exit: use 'exit', 'quit', or Ctrl-D\.\n  warn\([^\n]*\n?",
    re.MULTILINE,
)
#: How IPython ends an error without a message.
_NO_MESSAGE: Final = re.compile(r"\A([\w.]+):\s*\Z")
#: How the host's reason for a refusal begins, in an error's message and beneath its traceback.
_REASON: Final = "[cellblock: "
#: How IPython begins a frame of a cell's, and one of anything else.
_CELL: Final = re.compile(
    r"\s*(?:Cell In\[\d+\], line |File <tokenize>:)(\d+)(?:,? in ([^\n]*))?\n?(.*)", re.DOTALL
)
#: A frame of a cell's in a traceback that Python itself wrote.
_CELL_FILE: Final = re.compile(
    r'File "[^"\n]*/ipykernel_\d+/\d+\.py", (line \d+)(?:, in <module>)?'
)
_FILE: Final = re.compile(r"\s*File ")
_LIBRARY: Final = re.compile(r'\s*File [^"\n]*:\d+, in ')
#: What stands above the frames of an error: a rule, its type.
_HEAD: Final = re.compile(r"-+|\S+ +Traceback \(most recent call last\)")
_ARROW: Final = re.compile(r"^-+> *\d+ ?(.*)$", re.MULTILINE)
#: What stands between two errors of which the second was raised from, or during, the first.
_CHAINED: Final = {
    "The above exception was the direct cause of the following exception:": Heading.CAUSE,
    "During handling of the above exception, another exception occurred:": Heading.CONTEXT,
}
#: What of a cell that runs programs means that one of them uses a network.
_OF_NETWORK: Final = re.compile(
    r"://|\b(?:apt|curl|git|nslookup|pip|ping|rsync|scp|ssh|wget)\b", re.IGNORECASE
)
#: What a model is told of a page in frames, and the libraries of figures that have another name.
_UNSEEN: Final = (
    f"{Heading.NOTICE}: an interactive {{what}}, for people with a browser: {{seen}}. "
    "You can see pictures, such as matplotlib's]"
)
_NOTHING, _ITS_TEXT = "you can't see it", "you see its text alone"
_LIBRARIES: Final = {"vega": "altair"}
_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")
#: How a text may begin that was cut within a colour.
_REST_OF_COLOUR: Final = re.compile(r"\A\[?[0-9;:]*[A-Za-z](?=\W)")


@dataclass(frozen=True, slots=True)
class _Part:
    """A text that begins with a heading.

    Without one is what belongs to the part before it, and a card of the host's that opens a reply.
    """

    heading: Heading | None
    text: str
    #: How the text ends and what is missing before that, where it was cut.
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
class _Unread:
    """A part that is cleaned and marked when it is needed; ``size`` is that of its text before."""

    size: int
    read: Callable[[], _Part]


#: In place of the last parts, where there is no room for these.
_REST: Final = _Part(Heading.REST, "")


class Said(NamedTuple):
    """A result as text; ``is_whole`` says that nothing of it is cut or left out."""

    said: str
    is_whole: bool


def text_within(result: Result, limit: int) -> Said:
    """Return a result as text; parts that are too long keep their beginning and their end.

    At most ``limit`` characters. Where there is not room for all, how it ended and its error, or
    denials, have two thirds; what is short among the rest stays whole. What there is no room for
    is not looked at.
    """
    if limit < 1:
        return Said("", is_whole=False)
    text = _laid_out(result, limit)
    if result.left_out and not _gaps(result.outputs) <= set(text.said.split("\n")):
        # A note on what this leaves out stands where the policy's stood, and has not counted that.
        return _laid_out(result, limit, more="more ")
    return text


def _laid_out(result: Result, limit: int, more: str = "") -> Said:
    ending, shown = _ending_parts(result, limit), list(_shown_parts(result, limit, more))
    gap = len(_PARTS_GAP)
    is_cut = any(part.missing for part in shown)
    if is_cut or sum(len(part) + gap for part in [*ending, *shown]) - gap > limit:
        left = limit - sum(len(part) + gap for part in shown)
        texts = _fitted(ending, max(-(-limit * 2 // 3), left), least=1)
        texts += _fitted(shown, limit - len(_PARTS_GAP.join([*texts, ""])))
        return Said(_PARTS_GAP.join(texts), is_whole=False)
    whole = _PARTS_GAP.join(part.clipped(limit) for part in [*ending, *shown])
    # Of denials there may be as many as there is room for.
    return Said(whole, is_whole=not result.denials or ending == _ending_parts(result, sys.maxsize))


#: A note on what is missing, in a line that no cell printed.
_GAP: Final = re.compile(
    rf"{re.escape(Heading.NOTICE)} left out |"
    + re.escape(Heading.CUT).replace(re.escape("{number}"), r"[\d,]+")
)


def before_gaps(reply: str) -> dict[str, tuple[int, int]]:
    """Return where the first thing that a reply lacks of stdout and stderr begins in them.

    That is so many lines on, and then so many bytes. Of streams that it has in one piece until
    there.
    """
    found, seen = dict[str, tuple[int, int]](), set[str]()
    kind, number, before = "", 0, ""
    for line in reply.split("\n"):
        if f"{line}\n" in (Heading.STDOUT, Heading.STDERR):
            kind, number, before = "" if line in seen else line.removesuffix(":"), 0, ""
            seen.add(line)
            continue
        if kind and not line.startswith("\\") and reads_as_heading(line):
            if gap := _GAP.search(line):
                # The policy's is on a line of its own, and dots end the line that is cut before it.
                is_behind = line.startswith(Heading.NOTICE) and before.endswith(Heading.REST)
                begun = before[:-1] if is_behind else line[: gap.start()].removesuffix(" ")
                found[kind] = number - is_behind, len(begun.encode())
            kind = ""
        number, before = number + 1, line
    return found


def showed_anything(result: Result) -> bool:
    """Return whether a cell printed or displayed something, or ended in a value that is shown.

    An error that it did not end with is shown, too.
    """
    texts = (result.output, result.error_output, result.result)
    errors = (one.kind == "error" for one in result.outputs if result.error is None)
    return any(texts) or bool(result.displays or result.pages) or any(errors)


def ending(result: Result, limit: int) -> str:
    """Return how a cell ended and why, without what it showed, in at most ``limit`` characters."""
    return _PARTS_GAP.join(_fitted(_ending_parts(result, limit), limit, least=1))


def _fitted(parts: Sequence[_Part], room: int, *, least: int = 0) -> list[str]:
    """Return parts that fit ``room`` together: short ones whole, the others cut to equal lengths.

    Where they would be too short to be of use, the last are left out, but not the first ``least``.
    """
    for number in range(len(parts), least - 1, -1):
        kept = [*parts[:number], *([_REST] if number < len(parts) else [])]
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
    match result.status:
        case "ok":
            if card := _outcome_of(result):
                return [_Part(None, card)]
            how = "." if showed_anything(result) else " and showed nothing."
            return [_Part(Heading.RAN, how), *_failed_program(result)]
        case "denied":
            found = f"{count(len(result.denials), 'finding')} (policy {result.policy})."
            head = _Part(Heading.NOT_RUN, f": {found}")
            if result.usage is not None:
                head = _Part(Heading.STOPPED, f" at: {found}")
            room = limit - len(head) - len(_PARTS_GAP)
            parts = [head, _Part(None, _denials_text(result.denials, room, result.policy))]
        case "stopped":
            if result.stop is None:
                return [_Part(Heading.STOPPED, ".")]
            frames = _frames([plain(line) for line in result.stop.frames])[0]
            parts = [_Part(None, for_models(result.stop.said)), _Part(None, "\n".join(frames))]
        case _:
            said = _error_said(result)
            parts = [_Part(Heading.NOT_RUN, f": {said}")]
            if result.status == "error" and not _is_no_python(result):
                parts = [_Part(Heading.FAILED, said)]
            if result.error is not None:
                refused = result.refusal is not None
                lines = _traceback(result.error, _words(result.error), refused=refused)
                parts.append(_Part(None, "\n".join(lines)))
    return [part for part in parts if part.text]


def _failed_program(result: Result) -> Iterator[_Part]:
    """Yield how a program of ``!`` failed, and which network it has if it may have tried one."""
    status = result.program_status
    if not status:
        return
    said = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
    policy = result.provenance.policy if result.provenance is not None else None
    reached = True if policy is None else policy.network_access
    if policy is not None and reached is not True and _OF_NETWORK.search(result.source):
        what = "reach listed addresses alone" if reached else "have no network"
        said += f". Under policy {policy.name} cells {what} (network_access)"
    yield _Part(Heading.PROGRAM, f"{said}.")


def _is_no_python(result: Result) -> bool:
    """Return whether nothing of a cell ran because its source can't be parsed.

    What the compiler refuses later, such as a ``return`` outside of a function, ends a cell when
    its turn comes.
    """
    if result.error is None or result.error.type not in _OF_SYNTAX:
        return False
    return not is_python(result.source)


def _words(error: CellError | None) -> str:
    """Return an error's type and message, without the place that a syntax error's text shows."""
    placed = error is not None and error.type in _OF_SYNTAX and error.lines
    return _PLACE.sub("", str(error)) if placed else str(error)


def _error_said(result: Result) -> str:
    """Return an error's type and message; the words of one that the host explains are for a model.

    Any other message of a cell that failed is the cell's own.
    """
    said = _continued(_visible_source(_words(result.error)).split("\n"))
    explained = result.refusal is not None or (result.error and result.error.type in _OF_POLICY)
    return for_models(said) if result.status != "error" or explained else said


def _outcome_of(result: Result) -> str:
    """Return what a card says of a state that was gone back to, as by ``%undo``."""
    cards = (one.content["data"] for one in result.outputs if one.kind == "display_data")
    return "\n".join(card["text/plain"] for card in cards if OUTCOME_JSON in card)


def _denials_text(denials: Sequence[Denial], room: int, policy: str) -> str:
    """Return as many denials as there is room for, at least one, and the number of others.

    What would allow those that are shown follows, in one block.
    """
    texts = list(map(_denial_text, denials[:_MAX_DENIALS]))
    while True:
        more = len(denials) - len(texts)
        rest = [f"{Heading.MORE_FINDINGS.format(number=more)}{'s' * (more > 1)}."] if more else []
        shown = (line for one in denials[: len(texts)] for line in one.allows)
        allows = allowing(shown, policy if policy in PRESETS else "").block
        block = [_indented_block(Heading.OPERATOR_ALLOWS, allows)] if allows else []
        text = _PARTS_GAP.join([*texts, *rest, *block])
        if len(text) <= room or len(texts) <= 1:
            return text
        texts.pop()


def _denial_text(denial: Denial) -> str:
    """Return where, which rule, why, and what to do instead."""
    alone = denial.rule in ABOUT_THE_CELL or not denial.subject
    why = denial.why if alone else f"{denial.subject} {denial.why}"
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
    """Return a line of the cell's source with nothing in it that acts on a terminal."""
    return verbatim_lines(line.strip().replace("\n", "␊").expandtabs(4))


def _visible_source(text: str) -> str:
    """Return lines that a cell wrote with nothing else that acts on a terminal."""
    return verbatim_lines(text.expandtabs(4))


def _indented(text: str) -> list[str]:
    shown = visible_lines(clipped(text, _MAX_DETAIL).expandtabs(4))
    return [textwrap.indent(shown, "    ")] if text else []


def _continued(lines: Sequence[str]) -> str:
    """Return a cell's lines of which the first goes on in a line of the host's."""
    return f"\n{_INDENT}".join(lines)


def _traceback(error: CellError, said: str, *, refused: bool) -> Iterator[str]:
    """Yield the cell's own frames, the error's text beyond its message, and the errors before it.

    The message is ``said``; with ``refused``, the host's reason is among it.
    An error that another one was raised from, or during, has a line of the host's and its frames.
    """
    before, texts = list[tuple[Heading, list[str]]](), list[str]()
    for text in map(plain, error.lines):
        if (how := _CHAINED.get(text.strip())) is not None:
            before.append((how, texts))
            texts = []
        else:
            texts.append(text)
    frames, tail = _frames(texts)
    yield from frames
    whole = error.traceback
    if not frames and texts and texts[0].strip() == _USE_TB:
        whole = _beyond("\n".join(texts[1:]), said, refused=refused)
    rest = _beyond(tail, said, refused=refused) if frames else whole
    if rest.strip() == error.message.strip():  # all that the host shows of its own
        rest = ""
    # A syntax error's own line is among it: only what the traceback itself broke is broken.
    if rest.strip("- \n"):
        yield textwrap.indent(_visible_source(_CELL_FILE.sub(r"\1", rest)), _INDENT)
    if frames:
        for how, texts in before[: -_MAX_CAUSES - 1 : -1]:
            frames, tail = _frames(texts)
            message = _visible_source(clipped(_NO_MESSAGE.sub(r"\1", tail.strip()), _MAX_DETAIL))
            if message == said and not any(map(_CELL.match, texts)):
                continue  # a library's, raised anew with the same words
            yield _continued(f"{how}{message}".split("\n"))
            yield from frames


def _beyond(text: str, said: str, *, refused: bool) -> str:
    """Return the lines of an error's text behind those that ``said`` has.

    With ``refused`` the host put its reason behind the message in ``said``, and beneath the text,
    or at its end where there is no traceback of IPython's.
    """
    if refused:
        text = _without_reason(text)
    lines = _NO_MESSAGE.sub(r"\1", text.strip("\n")).split("\n")
    at, number = 0, 0
    while number < len(lines) and at < len(said) and said.startswith(lines[number].strip(), at):
        at += len(lines[number].strip())
        while said[at : at + 1].isspace():
            at += 1
        number += 1
    if refused and said[at:].removeprefix(": ").startswith(_REASON):
        return "\n".join(one for one in lines[number:] if not one.startswith(_REASON))
    return "\n".join(lines[number:]) if at >= len(said) else text.replace(said, "").strip("\n")


def _without_reason(text: str) -> str:
    """Return a text without the host's reason for a refusal, if that is its last line's end."""
    before, reason, rest = text.rpartition(_REASON)
    ends = reason and "\n" not in rest.rstrip() and rest.rstrip().endswith("]")
    return before.rstrip() if ends else text


def _frames(texts: Sequence[str]) -> tuple[list[str], str]:
    """Return lines on the cell's own frames of one error's traceback, and what follows those.

    An error that has none, as of what is formatted when the cell's code has run, has the innermost
    of the libraries'. The source of a syntax error follows, a cell's or what a cell had parsed.
    """
    frames, tail, library = list[str](), list[str](), ""
    for number, text in enumerate(texts, 1):
        is_last = number == len(texts)
        if (found := _CELL.match(text)) is not None:
            where = f"  line {found[1]}" + (f", in {_visible_line(found[2])}" if found[2] else "")
            line, rest = _ARROW.search(found[3]), found[3].strip("\n")
            source = line[1] if line else "" if is_last or "\n" in rest else rest
            frames.append(f"{where}: {_visible_line(source)}" if source else where)
            tail = [] if source else [found[3]]
        elif (_FILE.match(text) and not is_last) or _HEAD.fullmatch(text):
            if _LIBRARY.match(text):
                library = clipped(_visible_line(text.strip("\n").partition("\n")[0]), _MAX_NAME)
            tail = []
        else:
            tail.append(text)
    if library and not frames:
        frames = [f"  {library}"]
    left_out = ["  …"] * (len(frames) > _MAX_FRAMES)
    return frames[:1] + left_out + frames[1:][1 - _MAX_FRAMES :], "\n".join(tail)


def _shown_parts(result: Result, limit: int = sys.maxsize, more: str = "") -> Iterator[_Part]:
    """Yield what the cell showed, in the order in which it happened, and what else came of it.

    Of each that is longer than ``limit``, at least as much of either end. ``more`` stands before
    what the policy left out.
    """
    if late := result.late_output.strip() and result.late_output:
        yield _Part.of(Heading.LATE, _beneath(late, limit, _gaps(result.outputs)))
    shown = list(_parts_in_order(result, limit))
    if len(shown) > _MAX_SHOWN:  # each of many would be cut to nothing
        yield from (one.read() for one in shown[: _MAX_SHOWN - 1])
        yield _as_one(shown[_MAX_SHOWN - 1 :], limit)
    else:
        yield from (one.read() for one in shown)
    if (pages := _pages(result, limit)).text:
        yield pages
    for line in result.notices:
        yield _Part(Heading.NOTICE, for_models(line.removeprefix(Heading.NOTICE)))
    if said := left_out(result, more):
        yield _Part(Heading.LEFT_OUT, said.removeprefix(Heading.LEFT_OUT))
    copied = [(a.name, f" ({a.content_type}, {size(a.size_bytes)})") for a in result.artifacts]
    skipped = [(one.name, f": {one.why}") for one in result.skipped]
    for of_files, files in ((Heading.COPIED, copied), (Heading.NOT_COPIED, skipped)):
        lines = [clip(visible(name), _MAX_NAME) + visible(more) for name, more in files]
        if lines:
            yield _Part(of_files, f"{_listed(lines)}.")


def _as_one(parts: Sequence[_Unread], limit: int) -> _Part:
    """Return parts as one, with the heading of the first."""
    first = parts[0].read()

    def make(number: int) -> Cut:
        if not number:
            return first.cut
        part = parts[number].read()
        return Cut(f"{part.heading or ''}{part.text}", part.tail, part.missing)

    return _Part.of(first.heading, joined([one.size for one in parts], make, _PARTS_GAP, limit))


def _unread(heading: Heading, text: str, limit: int, hosts: Collection[str] = ()) -> _Unread:
    return _Unread(len(text), lambda: _Part.of(heading, _beneath(text, limit, hosts)))


def _beneath(text: str, limit: int, hosts: Collection[str] = ()) -> Cut:
    """Return a cell's text as it stands beneath a heading, ``limit`` characters of either end.

    ``hosts`` are lines in it that are the host's.
    """
    read = _without_styles(text.rstrip("\n"), limit).stripped()
    return read.to(limit).each(functools.partial(beneath, hosts=hosts)).stripped()


def _without_styles(text: str, limit: int) -> Cut:
    """Return a text without colours and without what was written over in a line.

    That is the text as far as it is looked at where a reply has room for ``limit`` characters.
    """
    cut = Cut(text).to(max(limit, _MOST_READ))
    if cut.missing:  # perhaps within a colour
        cut = Cut(split_tail(cut.head)[0], _REST_OF_COLOUR.sub("", cut.tail), cut.missing)
    return cut.each(without_styles)


def _pages(result: Result, limit: int = sys.maxsize) -> _Part:
    """Return what ``name?`` shows; empty where nothing was asked for."""
    pages = _PARTS_GAP.join(result.pages).strip("\n")
    return _Part.of(Heading.PAGES, _beneath(pages if pages.strip() else "", limit))


def _beside_the_error(error: CellError | None, said: str) -> str:
    """Return what was written to stderr, without what IPython says there of the error itself."""
    if error is not None and error.type == "UsageError" and plain(said).strip() == str(error):
        return ""
    is_exit = error is not None and error.type == "SystemExit"
    return _HOW_TO_EXIT.sub("", said) if is_exit else said


def _parts_in_order(result: Result, limit: int) -> Iterator[_Unread]:
    """Yield what the cell showed; what it printed between two displays is a part per stream."""
    gaps = _gaps(result.outputs)
    printed = {Heading.STDOUT: list[str](), Heading.STDERR: list[str]()}
    displays, texts_of = list[Display](), dict[int, str]()

    for one in (*_of_result(result), None):
        if isinstance(one, _Text):
            printed[one.heading].append(one.text)
            continue
        whole = [(heading, "".join(pieces)) for heading, pieces in printed.items()]
        whole[1] = Heading.STDERR, _beside_the_error(result.error, whole[1][1])
        texts = [(heading, text) for heading, text in whole if text.strip()]
        together = not texts and isinstance(one, Display) and not one.by_host
        if displays and not together:  # before what was printed then
            yield _displayed(displays, texts_of, limit)
            displays = []
        for heading, text in texts:
            yield _unread(heading, text, limit, gaps)
        for pieces in printed.values():
            pieces.clear()
        match one:
            case Display(by_host=True):
                yield _Unread(0, functools.partial(_card, one, limit))
            case Display():
                displays.append(one)
            case _ResultShown(display) if (part := _result_part(display, limit)).text.strip():
                yield _Unread(len(part), functools.partial(_itself, part))
            case _ErrorShown():
                yield _Unread(0, functools.partial(_Part, one.heading, one.text))


@dataclass(frozen=True, slots=True)
class _Text:
    """Text that a cell printed to the stream of that heading."""

    heading: Heading
    text: str


@dataclass(frozen=True, slots=True)
class _ResultShown:
    """The value of an expression."""

    display: Display


@dataclass(frozen=True, slots=True)
class _ErrorShown:
    """An error that did not end the cell: of something that was to be displayed, or another."""

    error: CellError
    of_display: bool
    #: What was not displayed, as far as it has a text that names it.
    name: str = ""

    @property
    def heading(self) -> Heading:
        return Heading.NOT_DISPLAYED if self.of_display else Heading.RAISED

    @property
    def text(self) -> str:
        """What it says, and the cell's own lines that it came from."""
        named = f"{_visible_line(self.name)}: " if self.name else ""
        whole = _visible_source(clipped(_words(self.error), _MAX_DETAIL))
        said = (for_models(whole) if _REASON in whole else whole).split("\n")
        texts = list[str]()
        for text in map(plain, self.error.lines):
            texts = [] if text.strip() in _CHAINED else [*texts, text]
        frames, _ = _frames(texts)
        return "\n".join([f"{named}{_continued(said)}", *frames])


_Shown = _Text | Display | _ResultShown | _ErrorShown


def displays_in_order(result: Result) -> Iterator[Display]:
    """Yield displays, and values that were shown, in the order in which ``to_string`` has them."""
    for one in _of_result(result):
        if isinstance(one, Display):
            yield one
        elif isinstance(one, _ResultShown):
            yield one.display


def _of_result(result: Result) -> Iterator[_Shown]:
    return _in_order(result, _of_cell(result.outputs)) if result.outputs else _by_hand(result)


def _by_hand(result: Result) -> Iterator[_Shown]:
    """Yield what a result has that was made without outputs."""
    yield _Text(Heading.STDOUT, result.output)
    yield _Text(Heading.STDERR, result.error_output)
    if result.result is not None:
        yield _ResultShown(result.rich_result or Display({_PLAIN: result.result}))
    yield from sorted(result.displays, key=lambda one: not one.by_host)


def _of_cell(outputs: Iterable[Output]) -> list[Output]:
    """Return outputs without cellblock's cards and notices, and what earlier cells printed."""
    return [one for one in outputs if not (one.ours or one.late or one.is_notice)]


def _in_order(result: Result, outputs: Iterable[Output]) -> Iterator[_Shown]:
    """Yield what a cell showed, as it happened, of these outputs of its result.

    The error that ended it is not among it. A display of which nothing is left but a name of what
    was to be shown is part of the error that it failed with.
    """
    failed = list[_ErrorShown]()
    for one in _as_they_came(result, outputs):
        if isinstance(one, _ErrorShown) and one.of_display:
            failed.append(one)
            continue
        is_name = bool(failed) and isinstance(one, Display) and _only_names(one)
        if is_name:
            failed[-1] = replace(failed[-1], name=str(one).strip())
        yield from failed
        failed.clear()
        if not is_name:
            yield one
    yield from failed


def _as_they_came(result: Result, outputs: Iterable[Output]) -> Iterator[_Shown]:
    transcript, hosts, of_display = Transcript(), set[int](), set[int]()
    for output in outputs:
        # A transcript has the very bundles and tracebacks of the outputs that were applied to it.
        if output.by_host and "data" in output.content:
            hosts.add(id(output.content["data"]))
        if output.is_of_display:
            of_display.add(id(output.content["traceback"]))
        transcript.apply(output)
    shown = transcript.outputs()
    errors = [one for one in shown if one["output_type"] == "error"]
    said = {_said(one) for one in errors if id(one["traceback"]) in of_display}
    if result.error is not None:
        said.add((result.error.type, result.error.message))
    for one in shown:
        match one["output_type"]:
            case _ if "data" in one and shown_at_the_end(one["data"], result.widgets) is None:
                continue
            case "stream":
                name = Heading.STDERR if one["name"] == "stderr" else Heading.STDOUT
                yield _Text(name, one["text"])
            case "error":
                error, fails = _cell_error(one), id(one["traceback"]) in of_display
                own = result.error is not None and error.lines == result.error.lines
                if not own and (fails or _said(one) not in said):
                    said.add(_said(one))
                    yield _ErrorShown(error, of_display=fails)
            case kind:
                by_host = id(one["data"]) in hosts
                data = shown_at_the_end(one["data"], result.widgets) or {}
                display = Display(data, one["metadata"], by_host=by_host)
                yield _ResultShown(display) if kind == "execute_result" else display


def _said(error: Mapping[str, Any]) -> tuple[str, str]:
    return error["ename"], plain(error["evalue"])


def left_out(result: Result, more: str = "") -> str:
    """Return what the policy's caps left out of a cell's output, a line for each kind."""
    return "\n".join(
        f"{Heading.LEFT_OUT}{count(number, f'{more}byte')} of {kind} ({kind}_max_bytes)."
        for kind, number in result.left_out.items()
    )


def _displayed(displays: Sequence[Display], texts: dict[int, str], limit: int) -> _Unread:
    """Return displays in one line where each has a short one, else each as it was printed.

    ``texts`` has the text of each bundle that was seen: one may be that of many displays.
    """
    for one in displays:
        if id(one.data) not in texts:
            texts[id(one.data)] = readable(one.data)
    sizes = [len(texts[id(one.data)]) for one in displays]

    def read_one(number: int) -> tuple[Display, Cut, frozenset[str]]:
        display = displays[number]
        cut, hosts = _read(display, texts[id(display.data)].strip("\n").rstrip(), limit)
        return display, cut if cut.missing else Cut(cut.head.strip("\n").rstrip()), hosts

    def make(number: int) -> Cut:
        display, cut, hosts = read_one(number)
        marked = cut.to(limit).each(functools.partial(beneath, hosts=hosts))
        return _display_text(display, marked)

    def read() -> _Part:
        if sum(sizes) <= _MOST_OF_SHORT:
            shown = [_display_text(*read_one(number)[:2]) for number in range(len(displays))]
            if all(len(each) <= _MAX_NAME and len(each.head.splitlines()) <= 1 for each in shown):
                names = [verbatim_lines(each.head.strip()) for each in shown]
                return _Part(Heading.DISPLAYED, _listed(names))
        return _Part.of(Heading.DISPLAYED_TEXTS, joined(sizes, make, _PARTS_GAP, limit))

    return _Unread(sum(sizes), read)


def _read(display: Display, text: str, limit: int) -> tuple[Cut, frozenset[str]]:
    """Return the text of a display as a model reads it, and the lines in it that are the host's.

    ``text`` is what is readable of it. The first line of a card is the host's, and all of one on a
    state that was gone back to. Of a page that needs a browser it is said that the model can't see
    it, unless there is a picture.
    """
    cut, own = _without_styles(text, limit), own_lines(display.data)
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
        what = f"figure of {_LIBRARIES.get(library, library)}" if library else "page"
        is_pages = bool(text) and text.strip() != str(display).strip()
        note = _UNSEEN.format(what=what, seen=_ITS_TEXT if is_pages else _NOTHING)
        hosts.add(note)
        end = (cut.tail if cut.missing else cut.head).removesuffix("\n")
        end = f"{end}\n{note}" if end else note
        cut = Cut(cut.head, end, cut.missing) if cut.missing else Cut(end)
    return cut, frozenset(hosts)


def _pictures(display: Display) -> list[str]:
    return [kind for kind in display.data if kind.startswith("image/")]


def _display_text(display: Display, cut: Cut) -> Cut:
    """Return the text of a display, below or behind the types that it also has.

    Of those, the HTML of a text of several lines is not named: a table says the same in both.
    """
    several = bool(cut.missing) or len(cut.head.splitlines()) > 1
    unnamed = {_PLAIN, _HTML} if several else {_PLAIN}
    kinds = [kind for kind in display.data if kind not in unnamed]
    if cut and not kinds:
        return cut
    named = f"<{', '.join(kinds) or 'nothing'}>"
    if several:
        return Cut(f"{named}\n{cut.head}", cut.tail, cut.missing)
    return Cut(f"{named} {cut.head.strip()}".rstrip())


def _marked(display: Display, limit: int) -> Cut:
    """Return the text of a display beneath a heading, ``limit`` characters of either end."""
    cut, hosts = _read(display, readable(display.data), limit)
    return cut.to(limit).each(functools.partial(beneath, hosts=hosts)).stripped()


def _card(display: Display, limit: int) -> _Part:
    return _Part.of(Heading.CARD, _marked(display, limit))


def _result_part(display: Display, limit: int) -> _Part:
    cut = _marked(display, limit)
    return _Part.of(Heading.RESULT, Cut(_result_text(display, cut.head), cut.tail, cut.missing))


def _itself(part: _Part) -> _Part:
    return part


def _result_text(display: Display, text: str) -> str:
    """Return the text of a value, behind the types of the pictures that it also has."""
    pictures = _pictures(display)
    return f"<{', '.join(pictures)}> {text}" if pictures else text


def _only_names(display: Display) -> bool:
    """Return whether a display has nothing but an object's name."""
    return set(display.data) <= {_PLAIN} and is_name(str(display))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return "; ".join([*names[:_MAX_NAMES], *([f"and {more:,} more"] if more > 0 else [])])


def plain(text: str) -> str:
    """Return ``text`` without a terminal's colours."""
    return _COLOUR.sub("", text)


def clipped(text: str, room: int) -> str:
    """Return ``text``, or its beginning and its end in at most ``room`` characters.

    Lines are whole where that costs less than half of either. Else what says how much is missing
    stands in the line that is cut: no piece of a line stands by itself, and could be a heading.
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
    """Return the result of a cell; ``content`` is that of an ``execute_reply``.

    ``late`` is text that earlier cells printed since the last result. ``session`` is what the
    audit log calls the session, ``origin`` the one that it is a fork of.
    """
    outcome, exported = run.outcome, run.exported
    failed, transcript = content["status"] != "ok", _transcript(outputs)
    shown = transcript.outputs()
    displays = _displays(transcript, shown, outputs)
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
        late_output="".join(one.content["text"] for one in late),
        notices=tuple(_notice(one) for one in outputs if one.is_notice),
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
    """Return the value of a cell that ran, as its guest says; None where that is none."""
    try:
        return arrays.checked_small(outcome.value)
    except ValueError:
        return None


def _transcript(outputs: Iterable[Output]) -> Transcript:
    """Return what a cell shows in the end.

    What widgets capture is among it: a result has no widgets that would show it.
    """
    transcript = Transcript()
    for output in _of_cell(outputs):
        transcript.apply(output)
    return transcript


def logged(result: Result, room: int = MOST_LOGGED) -> str:
    """Return what a cell wrote and displayed, and what the host added, as text in that order.

    For frameworks that show their model a log, and behind it the value that the cell ended in,
    which ``value_text`` has. No line of a cell's reads as one of the host's; the last one is ended.
    Beyond ``room`` characters the log has its beginning and its end, and says at the end what the
    policy left out, as the line on that may be cut: little more of what the cell showed is read.
    """
    parts = list(_logged_parts(result, room))
    log = joined([one.size for one in parts], lambda at: _in_log(parts[at].read()), "", room)
    said = left_out(result)
    behind = f"\n{said}\n" if said and (log.missing or len(log) > room) else ""
    return log.clipped(room - len(behind)) + behind if len(behind) < room else log.clipped(room)


def _logged_parts(result: Result, limit: int) -> Iterator[_Unread]:
    """Yield the parts of a log, of each at least ``limit`` characters of either end."""
    gaps, outputs = _gaps(result.outputs), list[Output]()
    for one in result.outputs:
        if one.late:
            continue
        if one.is_notice:  # it is no part of the cell's own stream
            bundle = {"data": {_PLAIN: _notice(one)}, "metadata": {}}
            outputs.append(Output("display_data", bundle, one.metadata))
        elif not one.ours or OUTCOME_JSON in one.content["data"]:
            outputs.append(one)  # others are for the program: gaps, the files that it is handed
    if late := result.late_output.strip() and result.late_output:
        yield _Unread(len(late), functools.partial(_printed, Heading.LATE, late, limit, gaps))
    for shown in _in_order(result, outputs):
        match shown:
            case _Text(text=text):
                yield _Unread(len(text), functools.partial(_printed, None, text, limit, gaps))
            case Display():
                yield _Unread(_length(shown), functools.partial(_display_logged, shown, limit))
            case _ErrorShown(error=error):
                size = len(error.message) + 1
                yield _Unread(size, functools.partial(_error_logged, shown))
    behind = [_pages(result, limit), *_failed_program(result)]
    yield from (_Unread(len(one), functools.partial(_itself, one)) for one in behind if one.text)


def _length(display: Display) -> int:
    """Return about how long a display's text is, without reading it."""
    return 1 + max((len(one) for one in display.data.values() if isinstance(one, str)), default=0)


def _error_logged(shown: _ErrorShown) -> _Part:
    return _Part(shown.heading, shown.text)


def _printed(heading: Heading | None, text: str, limit: int, hosts: Collection[str]) -> _Part:
    cut = _without_styles(text, limit).to(limit).each(functools.partial(beneath, hosts=hosts))
    if text.endswith("\n"):  # which ``beneath`` does not return
        cut = Cut(cut.head, f"{cut.tail}\n", cut.missing) if cut.missing else Cut(f"{cut.head}\n")
    return _Part.of(heading, cut)


def _in_log(part: _Part) -> Cut:
    """Return a part with its last line ended; what is empty has no line."""
    head, tail = f"{part.heading or ''}{part.text}", part.tail
    if part.missing:
        return Cut(head, _lines(tail), part.missing)
    return Cut(_lines(head))


def _lines(text: str) -> str:
    """Return ``text`` with its last line ended."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def value_text(result: Result, room: int = MOST_LOGGED) -> str | None:
    """Return the text of the value that a cell ended in, as ``to_string`` has it.

    Beyond ``room`` characters that is its beginning and its end.
    """
    if result.result is None:
        return None
    display = result.rich_result or Display({_PLAIN: result.result})
    data = shown_at_the_end(display.data, result.widgets) or {}
    cut = _read(replace(display, data=data), readable(data), room)[0].to(room)
    cut = Cut(_result_text(display, cut.head), cut.tail, cut.missing)
    return cut.each(verbatim_lines).clipped(room)


def _display_logged(display: Display, limit: int) -> _Part:
    """Return a display as lines; a table of the host's has names of the cell's in it."""
    cut = _marked(display, limit)
    if display.by_host:
        says_itself = reads_as_heading(cut.head.partition("\n")[0])
        return _Part.of(None if says_itself else Heading.CARD, cut)
    return _Part.of(None, cut) if cut else _Part(Heading.DISPLAYED, f"<{', '.join(display.data)}>")


def _gaps(outputs: Iterable[Output]) -> frozenset[str]:
    """Return the host's lines in a cell's streams, which say what is left out there."""
    texts = (without_styles(one.content["text"]) for one in outputs if one.is_gap)
    lines = (line for text in texts for line in text.splitlines())
    return frozenset(line for line in lines if line.startswith(Heading.NOTICE))


def _notice(output: Output) -> str:
    return visible(plain(output.content["data"][_PLAIN]))


def _stream_text(shown: Sequence[Mapping[str, Any]], name: str) -> str:
    return "".join(one["text"] for one in shown if one.get("name") == name)


def _displays(
    transcript: Transcript, shown: Sequence[Mapping[str, Any]], outputs: Sequence[Output]
) -> list[tuple[str, Display]]:
    """Return displays and results, each with its type."""
    # A transcript has the very bundles of the outputs that were applied to it.
    hosts = {id(one.content["data"]) for one in outputs if one.by_host and "data" in one.content}
    ids = {at: name for name, positions in transcript.displays.items() for at in positions}
    return [
        (
            one["output_type"],
            Display(one["data"], one["metadata"], ids.get(at), by_host=id(one["data"]) in hosts),
        )
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
    limit, frames = cell_status.stop_reason(stopped, views.in_force)[1], cell_status.frames(stopped)
    return Stop(stopped.why, limit, state, said, frames)


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
