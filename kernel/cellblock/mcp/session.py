"""One client's session: a sandbox, the tools and resources over it, and questions to a person.

``mcp.server`` translates between this module and the SDK. The first part declares the tools, a
struct for each. Then come the values that tools return, and the state of a call:

    Session.begin ─> ToolCall ─ next() ─> Reply                    the call has ended
                                └───────> Question ─ answer() ─┐   the call waits for a person
                                    ^──────────────────────────┘

``Session`` serves one call after the other, each in a task of its own, so that a call goes on while
a person is asked. The last part makes texts of results, for the model and for the person.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import itertools
import json
import math
import os
import re
import secrets
import shlex
import textwrap
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import quote, unquote_to_bytes

import msgspec

from cellblock.api.assigned import assigned_name, assigned_text, shape_words, variable_line
from cellblock.api.explained import MAX_EXPLAINED, policy_text, tools_text
from cellblock.api.fences import without_fence
from cellblock.api.images import MAX_IMAGES, Image, not_sent, pictures
from cellblock.api.results import before_gaps, clipped, ending, text_within
from cellblock.errors import CellblockError, ChangesError
from cellblock.host.audit import log
from cellblock.host.consent.approver import PERSON, No
from cellblock.host.consent.request import of_keeping, too_many
from cellblock.host.output.text import without_styles
from cellblock.host.services import changes, keeping
from cellblock.host.services.artifacts import content_type
from cellblock.host.threads import in_thread
from cellblock.mcp.staged import ToldChanges
from cellblock.render import policy_card, tables
from cellblock.render.cards import count
from cellblock.render.headings import Heading, beneath
from cellblock.render.text import encodable, verbatim_lines, visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from cellblock.api.results import ApprovalRequest, Result
    from cellblock.api.sandbox import AsyncSandbox, AsyncSandboxPool
    from cellblock.host.cell.transcript import Output
    from cellblock.host.services.artifacts import Artifact
    from cellblock.host.services.changes import Change, Staged
    from cellblock.host.services.exchange import File


#: Characters of a reply's text, and of a progress notification.
MAX_TEXT: Final = 16_000
MAX_PROGRESS: Final = 1_000
#: Characters of the note that says where the rest of a reply is.
_MAX_WHERE: Final = 400
#: In an explanation of everything: the least characters for why a cell was refused.
MIN_REFUSAL: Final = 1_000
#: Pictures in full size that can be read as resources, and the most bytes of all of them in base64.
#: A reply has smaller versions.
MAX_PLOTS: Final = 32
MAX_PLOT_BYTES: Final = 32 << 20
#: Bytes of a file that is read as a resource.
MAX_ARTIFACT: Final = 4 << 20
#: Artifacts, and files of cells, that are listed as resources.
MAX_ARTIFACTS: Final = 200
MAX_FILES: Final = 200
#: Calls under way, those that wait for a person included.
MAX_CALLS: Final = 32
#: Records of the audit log that the resource has, and their bytes.
MAX_RECORDS: Final = 100
MAX_LOG: Final = 1 << 20
#: Variables and changes that a reply lists.
MAX_VARIABLES: Final = 200
MAX_CHANGES: Final = 100
#: Seconds that a cell's timeout may have.
MAX_SECONDS: Final = 1_000_000
#: Characters of a cell's source in a question.
MAX_SOURCE: Final = 2_000
#: Seconds that a question stays open.
ANSWER_TIMEOUT: Final = 600.0
#: Characters of arguments that are put into one line of a question.
MAX_ARGUMENTS: Final = 160
#: Seconds that a question has left if its client makes another call instead of answering it.
AWAY_TIMEOUT: Final = 60.0
#: Cells that run side by side; ``TryVariants`` tells the model.
MAX_VARIANTS: Final = 8
#: Branches that are open at once.
MAX_BRANCHES: Final = 8
#: Characters of the text of a variant.
_OF_VARIANT: Final = 2_000
#: The repr of a number that a cell ends with, NumPy's scalars included.
_NUMBER: Final = re.compile(r"(?:np\.\w+\()?([^()]+)\)?")
#: Characters of such a repr.
MAX_NUMBER: Final = 100
#: A line of a question that is one argument. Its value has no comma or "=", so that it can't be
#: taken for further arguments if it is put into a line with others, and no mark ("¬") that it goes
#: on in the next line.
_ARGUMENT: Final = re.compile(r"  \S+ = [^,=\u00ac]+")


# --- the tools: their arguments, and as docstrings the descriptions that the model reads ----------

#: The name of a branch. ``Fork`` explains it, once, because clients send the list of tools with
#: each request to their model.
_OfBranch = Annotated[str, msgspec.Meta(max_length=40)]


class RunCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Run Python in the sandbox; variables live from call to call.

    Returns what the cell printed and showed, or why it was refused, failed or stopped, and what to
    write instead. A stopped cell costs no variables.
    """

    code: Annotated[str, msgspec.Meta(description="Python source.")]
    timeout: (
        Annotated[
            float,
            msgspec.Meta(gt=0, le=MAX_SECONDS, description="Seconds, at most the policy's."),
        ]
        | None
    ) = None
    branch: _OfBranch = ""


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start a branch: a copy of the variables for cells that must not change those here.

    run_cell, variables, undo and output take its name as branch. Pick a branch to go on with its
    variables instead of these, or drop it; both end it. Branches share the files.
    """

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}$")]
    action: Literal["start", "pick", "drop"] = "start"


class TryVariants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Run up to 8 cells side by side, each from the variables there are; go on from one of them.

    Kept are the variables of the first that succeeds, or whose last line gives the largest or
    smallest number. Files that any of them wrote stay.
    """

    codes: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_VARIANTS)]
    keep: Literal["first", "largest", "smallest"] = "first"
    timeout: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)] | None = None


class Reset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin anew: variables and branches are gone; a person can still keep what was staged."""


class Undo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Go back to the variables before the last cells; files stay."""

    cells: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    branch: _OfBranch = ""


class Variables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List variables: names, types, shapes, bytes."""

    branch: _OfBranch = ""


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List files that cells wrote to the project, staged until a person keeps them."""

    paths: Annotated[list[str], msgspec.Meta(max_length=100, description="Only beneath these.")] = (
        msgspec.field(default_factory=list)
    )
    diff: Annotated[bool, msgspec.Meta(description="With diffs.")] = False


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask the person to keep files that cells wrote to the project: all, or these."""

    paths: Annotated[list[str], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=list)


class Explain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Say why the last cell was refused or stopped, what the policy allows, what cells can call."""

    topic: Literal["all", "refusal", "policy", "tools"] = "all"


class EarlierOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read a page of output that a reply left out; without a cell, list what there is."""

    cell: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stream: Literal["stdout", "stderr", "display"] | None = None
    page: Annotated[int, msgspec.Meta(ge=1)] | Literal["last"] = 1
    branch: _OfBranch = ""


#: The tools by name: the struct of the arguments, and whether the tool only reads.
TOOLS: Final[dict[str, tuple[type[msgspec.Struct], bool]]] = {
    "run_cell": (RunCell, False),
    "reset": (Reset, False),
    "undo": (Undo, False),
    "fork": (Fork, False),
    "try_variants": (TryVariants, False),
    "variables": (Variables, True),
    "changes": (Changes, True),
    "keep": (Keep, False),
    "explain": (Explain, True),
    "output": (EarlierOutput, True),
}


# --- replies and questions ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a resource of this session."""

    uri: str
    name: str
    mime_type: str
    size: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A tool's reply: text for the model, how it ended as data, pictures, and links."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)
    images: tuple[Image, ...] = ()
    links: tuple[Link, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a resource: text, or bytes in ``blob``."""

    mime_type: str
    text: str = ""
    blob: bytes | None = None


Answer = Literal["once", "session", "no"]


class Question:
    """A question to a person. ``offers`` are the possible answers, ``no`` first.

    The call that asks waits until ``answer`` is called. If nobody answers in time, that is a no.
    """

    def __init__(self, text: str, offers: tuple[Answer, ...]) -> None:
        self.text = text
        self.offers = offers
        #: The id by which the client says which question it answers.
        self.token = secrets.token_hex(16)
        #: Done when the question is answered; cancelled when the call stops waiting for it.
        self.closed: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether the question is not answered, and its call still waits."""
        return not self.closed.done()

    def answer(self, answer: object) -> None:
        """Give an answer. An answer that was not offered means no."""
        if self.is_open:
            offered: list[Answer] = [offer for offer in self.offers if offer == answer]
            self.closed.set_result(offered[0] if offered else "no")

    async def wait(self) -> Answer:
        """Return the answer, or "no" after ``ANSWER_TIMEOUT``."""
        try:
            return await asyncio.wait_for(self.closed, ANSWER_TIMEOUT)
        except TimeoutError:
            return "no"


class ToolCall:
    """A tool's call under way, in a task of its own, which goes on while a person is asked.

    ``can_ask`` says whether the client that made the call can ask a person.
    """

    def __init__(self, *, can_ask: bool) -> None:
        self.can_ask = can_ask
        #: The id by which the client says which call it goes on with (``Session.resume``).
        self.token = secrets.token_hex(16)
        #: The question that the call waits for, if it waits for one.
        self.question: Question | None = None
        #: Whether questions are handed to the client, which makes another call with the answer.
        self.is_handed_out = False
        #: Variants may ask at the same time, but the person is asked one question at a time.
        self._asking = asyncio.Lock()
        #: Set when there is a question or a reply.
        self._changed = asyncio.Event()
        self._task: asyncio.Task[Reply] | None = None

    def start(self, work: Coroutine[Any, Any, Reply]) -> None:
        """Start the task that does ``work``."""
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(lambda _: self._changed.set())

    async def ask(self, text: str, *offers: Answer) -> Answer:
        """Return a person's answer, or "no". Whoever waits in ``next`` puts the question.

        ``offers`` are the answers beside "no".
        """
        async with self._asking:
            self.question = question = Question(text, ("no", *offers))
            self._changed.set()
            try:
                return await question.wait()
            finally:
                self.question = None

    async def next(self) -> Reply | Question:
        """Wait until there is a reply, or a question to put first, and return it."""
        while True:
            if self._task is not None and self._task.done():
                return self._task.result()
            if self.question is not None and self.question.is_open:
                return self.question
            self._changed.clear()
            await self._changed.wait()

    @property
    def has_ended(self) -> bool:
        """Whether the call has its reply, taken or not."""
        return self._task is not None and self._task.done()

    def cancel(self) -> None:
        """Cancel the call. Its cell is interrupted, and killed if it goes on."""
        if self._task is not None:
            self._task.cancel()


class Session:
    """One client's session over one sandbox of a pool.

    ``open`` starts the sandbox in the background; the first tool waits until it is ready.
    """

    def __init__(self, pool: AsyncSandboxPool) -> None:
        self._pool = pool
        pool.answered_by = PERSON
        pool.kept_by = tables.BY_TOOL
        self._sandbox: AsyncSandbox | None = None
        #: The open branches, by name: forks that share the sandbox's files.
        self._branches: dict[str, AsyncSandbox] = {}
        self._opening: asyncio.Task[AsyncSandbox] | None = None
        #: Held by the call that uses the sandbox.
        self._lock = asyncio.Lock()
        #: That call.
        self._running: ToolCall | None = None
        #: The calls under way, by token.
        self._calls: dict[str, ToolCall] = {}
        #: The result of the last call that ran cells. It has several results if the call ran
        #: variants and kept none.
        self._last: tuple[Result, ...] = ()
        self._plots: deque[tuple[int, Image]] = deque()
        self._plot_numbers = itertools.count(1)
        self._artifacts: dict[str, Artifact] = {}
        self._artifact_numbers = itertools.count(1)
        #: The files that cells made or changed, listed when no call was under way.
        self._files: tuple[File, ...] = ()
        self._told_changes = ToldChanges()

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def open(self) -> None:
        """Start the sandbox in the background."""
        self._opening = asyncio.get_running_loop().create_task(self._start())
        # Read the exception, so that asyncio does not log it: `sandbox` raises it in any call that
        # needs the sandbox.
        self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _start(self) -> AsyncSandbox:
        """Open a sandbox. After a reset, its log counts together with the former sandbox's."""
        await self._pool.open()
        asks = self._pool.config.policy.approvals == "prompt"
        former = self._sandbox
        self._sandbox = sandbox = self._pool.sandbox(approve=self._approve if asks else None)
        if former is not None:
            sandbox.log_written = former.log_written
        await sandbox.open()
        return sandbox

    async def sandbox(self) -> AsyncSandbox:
        """Return the sandbox when it is ready. Raises CellblockError if there is none."""
        if self._opening is None:
            raise CellblockError("the session has ended")
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """Cancel all calls, and close the sandbox."""
        for call in tuple(self._calls.values()):
            call.cancel()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait({opening})
        if self._sandbox is not None:
            await self._sandbox.close()

    # --- calls ------------------------------------------------------------------------------------

    def begin(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        can_ask: bool,
        report: Callable[[str], Awaitable[None]] | None = None,
    ) -> ToolCall:
        """Begin a tool's call. The caller must end it with ``end``.

        ``report`` is awaited with pieces of the text that a cell prints while it runs. Raises
        KeyError for an unknown tool, msgspec.ValidationError for arguments that don't fit, and
        CellblockError if too many calls are under way.
        """
        kind, _ = TOOLS[name]
        # Some clients (CrewAI) send null for arguments that their model omitted.
        given_arguments = {key: value for key, value in arguments.items() if value is not None}
        request = msgspec.convert(given_arguments, kind)
        if len(self._calls) >= MAX_CALLS:
            # Forget calls that have ended, but whose clients did not come back for the reply.
            self._calls = {
                token: earlier_call
                for token, earlier_call in self._calls.items()
                if not earlier_call.has_ended
            }
        if len(self._calls) >= MAX_CALLS:
            raise CellblockError(f"{MAX_CALLS} calls are under way: wait for one of them")
        # A call whose question was handed to the client holds the sandbox. If the client makes
        # another call instead of answering, the question is closed before long.
        for earlier_call in self._calls.values():
            if earlier_call.question is not None and earlier_call.is_handed_out:
                asyncio.get_running_loop().call_later(
                    AWAY_TIMEOUT, earlier_call.question.answer, "no"
                )
        call = ToolCall(can_ask=can_ask)
        self._calls[call.token] = call
        call.start(self._serve(call, request, report))
        return call

    def resume(self, token: str) -> ToolCall | None:
        """Return the call with this token, or None if it has ended."""
        return self._calls.get(token)

    def end(self, call: ToolCall) -> None:
        """Forget a call, and cancel it if it has no reply yet."""
        self._calls.pop(call.token, None)
        call.cancel()

    async def _serve(
        self, call: ToolCall, request: Any, report: Callable[[str], Awaitable[None]] | None
    ) -> Reply:
        """Return a call's reply, once it is the call's turn."""
        async with self._lock:
            self._running = call
            try:
                return await self._answer(call, request, report)
            except CellblockError as error:
                return _failed_reply(str(error))
            finally:
                self._running = None

    async def _answer(
        self, call: ToolCall, request: Any, report: Callable[[str], Awaitable[None]] | None
    ) -> Reply:
        """Return the reply to ``request``, which is one of the structs of ``TOOLS``."""
        sandbox = await self.sandbox()
        match request:
            case RunCell():
                reply = await self._run_cell(sandbox, call, request, report)
            case Undo(cells=cells, branch=branch):
                target = self._branch(sandbox, branch)
                self._last = ()
                undone = await target.execute(f"%undo {cells}", may_ask=False)
                reply = await self._reply_of(target, undone)
            case Fork(name=name, action=action):
                reply = await self._fork(sandbox, name, action)
            case TryVariants():
                reply = await self._try_variants(sandbox, call, request)
            case Reset():
                reply = await self._reset(sandbox)
            case Variables(branch=branch):
                reply = _variables_reply(await self._branch(sandbox, branch).variables())
            case Changes(paths=paths, diff=diff):
                staged = await sandbox.changes(paths)
                reply = await in_thread(_changes_reply, sandbox.listable, staged, diff=diff)
            case Keep(paths=paths):
                reply = await self._keep(call, sandbox.listable, paths)
            case EarlierOutput(cell=cell, stream=stream, page=page, branch=branch):
                argument = "" if cell is None else f"{cell} {stream or ''} {page}"
                text = self._branch(sandbox, branch).earlier_output(argument, of_tool=True)
                is_page = cell is not None and text.startswith(Heading.PAGE.format(number=cell))
                reply = Reply(_bounded(_page(text) if is_page else text))
            case _:
                reply = self._explain(sandbox, request.topic)
        return reply

    def _branch(self, sandbox: AsyncSandbox, name: str) -> AsyncSandbox:
        """Return the sandbox of a branch, or the session's own if ``name`` is empty."""
        if name and name not in self._branches:
            names = ", ".join(self._branches) or "none"
            raise CellblockError(f"there is no branch {name!r}; there are: {names}")
        return self._branches[name] if name else sandbox

    async def _fork(self, sandbox: AsyncSandbox, name: str, action: str) -> Reply:
        """Start, pick or drop a branch."""
        if action != "start":
            fork = self._branch(sandbox, name)
            if action == "pick":
                await sandbox.go_on_from(fork)
            del self._branches[name]
            await fork.close()
            text = Heading.DROPPED.format(name=name)
            if action == "pick":
                text = f"{Heading.PICKED.format(name=name)}, which has ended. Branches: "
        else:
            if name in self._branches:
                raise CellblockError(f"there is a branch {name!r} already: pick or drop it first")
            if len(self._branches) >= MAX_BRANCHES:
                raise CellblockError(f"{MAX_BRANCHES} branches are open: pick or drop one first")
            (self._branches[name],) = await sandbox.fork(shares_files=True)
            text = f"{Heading.BRANCHED.format(name=name)}. Branches: "
        branches = list(self._branches)
        return Reply(f"{text}{', '.join(branches) or 'none'}.", {"branches": branches})

    async def _try_variants(
        self, sandbox: AsyncSandbox, call: ToolCall, request: TryVariants
    ) -> Reply:
        """Run variants. Return the results of all, with the first pictures among them."""
        self._last = ()
        choose = functools.partial(_choose, request.keep)
        codes = map(without_fence, request.codes)
        assigned = list[str]()

        async def look(fork: AsyncSandbox, result: Result) -> None:
            assigned.append(await _assigned(fork, result))

        variants = await sandbox.look_at_variants(
            list(codes), choose, timeout=request.timeout, look=look
        )
        self._last = (
            variants.results if variants.kept is None else (variants.results[variants.kept],)
        )
        summaries = list[_Variant]()
        images = list[Image]()
        most_plots = MAX_PLOTS // max(1, len(variants.results))
        for result, sentence in zip(variants.results, assigned, strict=True):
            plots = await in_thread(list, pictures(result))
            links = tuple(map(self._add_plot, plots[:most_plots]))
            small = await sandbox.images(result) if links and len(images) < MAX_IMAGES else ()
            small = small[: MAX_IMAGES - len(images)]
            sent_numbers = tuple(image.number for image in small)
            plots_left_out = len(plots) - len(links)
            summaries.append(_Variant(result, sentence, links, sent_numbers, plots_left_out))
            images += small
        staged = await self._newly_staged(sandbox, call)
        return await in_thread(_variants, variants.kept, summaries, images, staged)

    async def _run_cell(
        self,
        sandbox: AsyncSandbox,
        call: ToolCall,
        request: RunCell,
        report: Callable[[str], Awaitable[None]] | None,
    ) -> Reply:
        """Run a cell in the sandbox or in a branch, and return its reply."""
        target = self._branch(sandbox, request.branch)
        self._last = ()
        result = await self._run(target, request.code, request.timeout, report)
        assigned = await _assigned(target, result)
        return await self._reply_of(
            target, result, assigned, await self._newly_staged(sandbox, call)
        )

    async def _run(
        self,
        sandbox: AsyncSandbox,
        code: str,
        seconds: float | None,
        report: Callable[[str], Awaitable[None]] | None,
    ) -> Result:
        """Run a cell, and report its progress meanwhile if ``report`` is given."""
        if report is None:
            return await sandbox.execute(without_fence(code), timeout=seconds)
        progress = Progress(report)
        reporting = asyncio.get_running_loop().create_task(progress.serve())
        try:
            return await sandbox.execute(
                without_fence(code), timeout=seconds, on_output=progress.add
            )
        finally:
            reporting.cancel()

    async def _reset(self, sandbox: AsyncSandbox) -> Reply:
        """Close the sandbox and its branches, and open another sandbox."""
        sandbox.check_budgets("reset is", "Delete the variables instead, or undo cells.")
        staged = sandbox.listable
        staged_note = ""
        if staged is not None and await in_thread(staged.is_written_to):
            staged_note = f" A person can keep what was staged: cellblock changes keep {staged.id}"
        await sandbox.close()
        self._branches.clear()
        self._last = ()
        self._files = ()
        self._told_changes = ToldChanges()
        self.open()
        await self.sandbox()
        return Reply(f"{Heading.NEW}it has no variables, and nothing is staged.{staged_note}")

    # --- results ----------------------------------------------------------------------------------

    async def _newly_staged(self, sandbox: AsyncSandbox, call: ToolCall) -> str:
        """Return lines on the staged files that changed since the last reply, or ""."""
        staged = sandbox.listable
        if staged is None:
            return ""
        instruction = "The tool keep asks a person to do the same in the project."
        if not call.can_ask:  # the command ends the text, so that it can be pasted
            command = f"cellblock changes keep {staged.id}"
            instruction = f"In a terminal a person can do the same in the project: {command}"
        return await in_thread(self._told_changes.news, staged, instruction)

    async def _reply_of(
        self, sandbox: AsyncSandbox, result: Result, assigned: str = "", staged: str = ""
    ) -> Reply:
        """Return the reply on a cell's result. What it leaves out can be read by the tool output.

        ``assigned`` and ``staged`` are lines that are added to the text.
        """
        self._last = (result,)
        images = await sandbox.images(result)
        all_pictures = await in_thread(list, pictures(result))
        plots = [(image, self._add_plot(image)) for image in all_pictures[:MAX_PLOTS]]
        artifacts = [self._add_artifact(one) for one in result.artifacts[:MAX_ARTIFACTS]]
        # The text names the pictures' resources, because some clients give their model only the
        # text or the data, without the pictures.
        uris = [link.uri for _, link in plots]
        missing_note = not_sent(
            uris, (one.number for one in images), more=len(all_pictures) - len(plots)
        )
        notes = [assigned, _pictures_at(uris), missing_note, staged]
        text, is_whole = await in_thread(_text_of, result, MAX_TEXT - _length_of_notes(notes))
        if not is_whole:
            # After `clear_output`, positions in the text are not positions in the streams.
            cleared = any(one.kind == "clear_output" for one in result.outputs)
            gaps = {} if cleared else before_gaps(text)
            if places := sandbox.keep_output(gaps, of_tool=True):
                notes.append(f"{Heading.MORE}{places}.")
        links = [link for image, link in plots if image not in images]
        return Reply(
            _bounded("\n\n".join(filter(None, (text, *notes)))),
            _result_data(result, [*uris, *(one.uri for one in artifacts)]),
            images,
            (*links, *artifacts),
            failed=not result.success,
        )

    def _add_plot(self, image: Image) -> Link:
        """Keep a picture as a resource, and forget the oldest if there are too many."""
        number = next(self._plot_numbers)
        self._plots.append((number, image))
        while (
            len(self._plots) > MAX_PLOTS
            or sum(len(plot.data) for _, plot in self._plots) > MAX_PLOT_BYTES
        ) and len(self._plots) > 1:
            self._plots.popleft()
        return _plot_link(number, image)

    def _add_artifact(self, artifact: Artifact) -> Link:
        """List an artifact as a resource; a file that is written again keeps its number."""
        same_file = (key for key, listed in self._artifacts.items() if listed.path == artifact.path)
        number = next(same_file, None) or f"{next(self._artifact_numbers)}"
        self._artifacts[number] = artifact
        while len(self._artifacts) > MAX_ARTIFACTS:
            del self._artifacts[next(iter(self._artifacts))]
        return _artifact_link(number, artifact)

    def _explain(self, sandbox: AsyncSandbox, topic: str) -> Reply:
        """Return why the last cell was refused, what the policy allows, and the tools."""
        parts = list[str]()
        if topic in ("all", "tools"):
            parts.append(tools_text(sandbox))
        if topic in ("all", "policy"):
            parts.append(policy_text(sandbox))
        if topic in ("all", "refusal"):
            room = max(MIN_REFUSAL, MAX_EXPLAINED - sum(len(part) + 2 for part in parts))
            failed = [result for result in self._last if not result.success]
            endings = [ending(result, room // len(failed) - 2) for result in failed]
            parts = [*(endings or [str(Heading.NOT_REFUSED)]), *parts]
        # A single topic is explained at greater length.
        max_length = MAX_EXPLAINED if topic == "all" else MAX_TEXT
        return Reply(_bounded(clipped("\n\n".join(parts), max_length)))

    # --- questions to the person at the client ----------------------------------------------------

    async def _approve(self, request: ApprovalRequest) -> str | No:
        """Return the person's answer to a cell's request. Called by the sandbox, as ``approve``.

        If nobody can be asked, the answer is a no that says what the operator can do.
        """
        call = self._running
        if call is None or not call.can_ask:
            return _unasked_answer(request)
        answer = await call.ask(_question(request), *request.offers)
        if answer != "no":
            return answer
        names = ", ".join(map(visible, request.names))
        return No(why=_NOT_ALLOWED, remedy=f"Do without {names}: {_NOT_ALLOWED}.")

    async def _keep(self, call: ToolCall, staged: Staged | None, paths: Sequence[str]) -> Reply:
        """Ask the person to keep staged files, and keep exactly the content that was shown."""
        if staged is None:
            raise ChangesError("nothing is staged under this policy")
        changes_to_keep = await in_thread(staged.chosen, paths)
        if not changes_to_keep:
            raise ChangesError("nothing is staged that could be kept")
        if not call.can_ask:
            command = shlex.join([staged.id, *staged.named(paths)])
            raise ChangesError(
                f"{Heading.NOT_KEPT}only a person can decide that, and this client can't ask one. "
                f"In a terminal: cellblock changes keep {command}"
            )
        digests = await in_thread(lambda: changes.finish(keeping.digests(staged, changes_to_keep)))
        request = of_keeping(changes_to_keep, digests, paths)
        if not request.whole:
            raise ChangesError(f"{Heading.NOT_KEPT}{too_many(changes_to_keep)}")
        asks = f"May this session {request.asks}"
        text = "\n".join([asks, *request.shown, "Yes, once: they are written to your project."])
        if await call.ask(text, "once") == "no":
            raise ChangesError(f"{Heading.NOT_KEPT}{_NOT_ALLOWED}")
        exactly = keeping.token(changes_to_keep, digests)
        entries = await in_thread(
            lambda: keeping.keep(staged, paths, by="an MCP client's user", exactly=exactly)
        )
        names = [visible(entry.change.name) for entry in entries]
        return Reply(_kept_text(names), {"kept": names[:MAX_CHANGES]})

    # --- resources --------------------------------------------------------------------------------

    async def resources(self) -> list[tuple[Link, str]]:
        """Return the resources that can be read, each with a description.

        Doesn't wait for a cell that runs: then the cells' files are those listed before.
        """
        if self._opening is not None and self._opening.done() and not self._lock.locked():
            async with self._lock:  # free, so this doesn't wait; calls that come now wait for this
                with contextlib.suppress(CellblockError):
                    sandbox = await self.sandbox()
                    if _shows_files(sandbox):
                        self._files = await sandbox.files(changed=True)
        fixed = [
            (Link(uri, name, kind, 0), description) for uri, name, kind, description in _RESOURCES
        ]
        plots = [(_plot_link(*entry), "A picture that a cell showed.") for entry in self._plots]
        artifacts = [
            (_artifact_link(number, entry), "A file that a cell wrote, copied out.")
            for number, entry in self._artifacts.items()
        ]
        files = [
            (_file_link(entry), "A file that cells made or changed.")
            for entry in self._files[:MAX_FILES]
        ]
        return [*fixed, *plots, *artifacts, *files]

    async def read(self, uri: str) -> Contents:
        """Return a resource's contents.

        Raises KeyError if there is no such resource, and CellblockError if it can't be read.
        """
        kind, _, name = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME):
            raise KeyError(uri)
        if kind == "plots":
            image = {f"{number}": image for number, image in self._plots}[name]
            return Contents(image.mime_type, blob=base64.b64decode(image.data))
        if kind == "artifacts":
            return await in_thread(_artifact_contents, self._artifacts[name])
        sandbox = await self.sandbox()
        if kind == "files" and _shows_files(sandbox):
            return await _file_contents(sandbox, os.fsdecode(unquote_to_bytes(name)))
        return await self._of_session(sandbox, uri)

    async def _of_session(self, sandbox: AsyncSandbox, uri: str) -> Contents:
        """Return the contents of one of ``_RESOURCES``, which every session has."""
        if uri == f"{_SCHEME}policy":
            return Contents("text/plain", _bounded(_policy_text(sandbox)))
        if uri == f"{_SCHEME}enforcement":
            return Contents("application/json", _enforcement(sandbox))
        if uri == f"{_SCHEME}receipt":
            if not self._last:
                raise CellblockError("there is no receipt: run a cell, to its end, first")
            if len(self._last) > 1:
                raise CellblockError("there is no receipt: no variant was kept. Run the cell")
            return Contents("application/json", self._last[0].receipt)
        if uri == f"{_SCHEME}audit":
            return Contents("application/jsonl", await in_thread(_audit_tail, sandbox))
        raise KeyError(uri)


class Progress:
    """The text that a cell prints, reported in bounded pieces, at most ten a second."""

    #: Seconds between two reports.
    _PAUSE: Final = 0.1

    def __init__(self, report: Callable[[str], Awaitable[None]]) -> None:
        self._report = report
        #: The text since the last report.
        self._text = ""
        self._more = asyncio.Event()

    def add(self, output: Output) -> None:
        """Take an output. If there is more text than a report may have, only its end is kept."""
        if output.kind == "stream":
            self._text = (self._text + str(output.content["text"]))[-MAX_PROGRESS:]
            self._more.set()

    async def serve(self) -> None:
        """Report until cancelled, or until the client is gone."""
        with contextlib.suppress(Exception):
            while True:
                await self._more.wait()
                self._more.clear()
                text, self._text = _bounded(self._text), ""
                await self._report(text)
                await asyncio.sleep(self._PAUSE)


# --- texts ----------------------------------------------------------------------------------------

_SCHEME: Final = "cellblock://"
#: The template of URIs of files, by their names in the folder where cells begin (RFC 6570).
FILES: Final = f"{_SCHEME}files/{{+name}}"
_RESOURCES: Final = (
    (f"{_SCHEME}policy", "policy", "text/plain", "The policy in force, as %policy shows it."),
    (
        f"{_SCHEME}enforcement",
        "enforcement",
        "application/json",
        "How far each capability is enforced on this machine, and what is not.",
    ),
    (f"{_SCHEME}audit", "audit", "application/jsonl", "The end of this session's audit log."),
    (
        f"{_SCHEME}receipt",
        "receipt",
        "application/json",
        "What the host vouches for of the last cell's result, signed.",
    ),
)


def _bounded(text: str) -> str:
    """Return text for a client, bounded: no character moves a cursor, reorders a line or hides."""
    return encodable(clipped(verbatim_lines(without_styles(text)), MAX_TEXT))


def _failed_reply(text: str) -> Reply:
    return Reply(_bounded(text), {"status": "failed"}, failed=True)


def _kept_text(names: Sequence[str]) -> str:
    head = Heading.KEPT.format(number=len(names))
    hidden = len(names) - MAX_CHANGES
    return _bounded(
        "\n".join([head, *names[:MAX_CHANGES], *([f"and {hidden} more"] * (hidden > 0))])
    )


def _text_of(result: Result, room: int) -> tuple[str, bool]:
    """Return a result's text, and whether it is whole. If not, it leaves room for a note on that.

    Called in a worker thread: the output of some cells takes seconds, and the loop serves other
    clients.
    """
    text, is_whole = text_within(result, room)
    return (text, True) if is_whole else (result.to_string(room - _MAX_WHERE), False)


def _result_data(result: Result, uris: list[str]) -> dict[str, Any]:
    """Return how a cell ended, as data. Its output is in the text only."""
    data: dict[str, Any] = {"status": result.status, "execution_count": result.execution_count}
    if result.error is not None:
        data["error"] = {"type": result.error.type}
    if result.denials:
        data["denials"] = [
            {"rule": denial.rule, "line": denial.line} for denial in result.denials[:20]
        ]
    if result.stop is not None:
        data["stop"] = {"why": result.stop.why, "variables": result.stop.state}
    if result.tool_calls:
        data["tool_calls"] = len(result.tool_calls) + result.tool_calls_left_out
    if result.left_out:
        data["left_out"] = dict(result.left_out)
    if uris:
        data["resources"] = uris
    return data


def _choose(keep: str, results: Sequence[Result]) -> int | None:
    """Return the index of the result to keep, or None if no cell succeeded, or gave a number."""
    succeeded = [index for index, result in enumerate(results) if result.success]
    if keep == "first":
        return min(succeeded, default=None)
    numbers = dict[int, float]()
    for index in succeeded:
        with contextlib.suppress(ValueError):
            match = _NUMBER.fullmatch(clipped(results[index].result or "", MAX_NUMBER))
            if match and not math.isnan(number := float(match[1])):
                numbers[index] = number if keep == "largest" else -number
    return max(numbers, key=lambda index: numbers[index], default=None)


def _why_none(results: Sequence[Result]) -> str:
    """Return the reason why no variant was kept.

    If any succeeded, the variants that succeeded ended in no number: else one would be kept.
    """
    reason = "none succeeded"
    if any(result.success for result in results):
        reason = "none that succeeded ends in an expression whose value is a number"
    return f"none, as {reason}: variables are as they were"


def _pictures_at(uris: Sequence[str]) -> str:
    listing = ", ".join(uris)
    return f"{Heading.PICTURES_AT}{listing}." if listing else ""


def _length_of_notes(notes: Sequence[str]) -> int:
    """Return the number of characters that notes take after a text."""
    return sum(len(note) + 2 for note in notes if note)


@dataclass(frozen=True, slots=True)
class _Variant:
    """The result of a variant, and its pictures."""

    result: Result
    #: The sentence on the variable that it assigned, or "".
    assigned: str
    #: The resources of its first pictures.
    plots: tuple[Link, ...]
    #: The numbers of the pictures that the reply has.
    sent: tuple[int, ...]
    #: The number of pictures that are no resources.
    more: int


def _variants(
    kept: int | None, variants: Sequence[_Variant], images: Sequence[Image], staged: str
) -> Reply:
    """Return the reply on all variants; ``images`` are the pictures that it has."""
    choice = f"{kept + 1}" if kept is not None else _why_none([item.result for item in variants])
    parts = [f"{Heading.VARIANT_KEPT}{choice}."]
    is_cut = False
    images_before = 0
    for number, variant in enumerate(variants, 1):
        text, is_whole = text_within(variant.result, _OF_VARIANT)
        is_cut |= not is_whole
        parts.append(f"{Heading.VARIANT.format(number=number)}{text}")
        names = [link.uri for link in variant.plots]
        notes = [
            variant.assigned,
            _pictures_at(names),
            _pictures_of_variant(images_before, len(variant.sent)),
        ]
        parts += filter(None, [*notes, not_sent(names, variant.sent, more=variant.more)])
        images_before += len(variant.sent)
    if is_cut:
        cut = Heading.SHORTENED.format(number=f"{_OF_VARIANT:,}")
        parts.append(f"{cut} each: print less, or run the cell of one by run_cell.")
    parts += filter(None, [staged])
    links = tuple(link for variant in variants for link in variant.plots)
    text = _bounded("\n\n".join(parts))
    return Reply(text, images=tuple(images), links=links, failed=kept is None)


def _pictures_of_variant(before: int, sent: int) -> str:
    """Return which of a reply's pictures are a variant's: ``sent``, after ``before`` others."""
    if not sent:
        return ""
    numbers = f"{before + 1}" if sent == 1 else f"{before + 1} to {before + sent}"
    return f"{Heading.PICTURES_OF_REPLY}{numbers}."


async def _assigned(sandbox: AsyncSandbox, result: Result) -> str:
    """Return the sentence on the variable that a cell assigned without showing anything, or ""."""
    name = assigned_name(result)
    return assigned_text(name, await sandbox.variables()) if name else ""


_LINES_OF_A_PAGE: Final = 2


def _page(page: str) -> str:
    """Return a page of earlier output, with the cell's text marked so that no line is a heading.

    The first two lines are the host's: a title, and the number of the page.
    """
    *hosts, text = page.split("\n", _LINES_OF_A_PAGE)
    return "\n".join([*hosts, beneath(text)]) if len(hosts) > 1 else page


def _variables_reply(variables: Sequence[Any]) -> Reply:
    """Return the reply that lists variables."""
    listed = variables[:MAX_VARIABLES]
    lines = list(map(variable_line, listed))
    if len(variables) > len(listed):
        lines.append(f"and {len(variables) - len(listed)} more")
    data = [
        {"name": variable.name, "type": variable.type, "shape": shape_words(variable)}
        | ({"bytes": variable.size} if variable.size else {})
        for variable in listed
    ]
    return Reply(_bounded("\n".join(lines) or str(Heading.NO_VARIABLES)), {"variables": data})


def _changes_reply(staged: Staged | None, changes: Sequence[Change], *, diff: bool) -> Reply:
    """Return the reply that lists staged changes, with their diffs if asked for."""
    if staged is None:
        return Reply(str(Heading.NOTHING_STAGED), {"changes": []})
    lines = list[str]()
    data = list[dict[str, Any]]()
    for change in changes[:MAX_CHANGES]:
        name = visible(change.name)
        never = f" (never kept: {change.why_not})" if change.why_not else ""
        never_field = {"never_kept": change.why_not} if change.why_not else {}
        size = "" if change.size is None else f", {count(change.size, 'byte')}"
        lines.append(f"{change.kind}: {name}{size}{never}")
        if diff:
            lines.append(textwrap.indent(visible_lines(staged.diff(change).text), "  "))
        size_field = {} if change.size is None else {"bytes": change.size}
        data.append({"path": name, "kind": change.kind, **size_field, **never_field})
    if not lines:
        return Reply(str(Heading.NOTHING_WRITTEN), {"changes": []})
    if len(changes) > len(data):
        lines.append(f"and {len(changes) - len(data)} more")
    return Reply(_bounded("\n".join(lines)), {"changes": data})


def _policy_text(sandbox: AsyncSandbox) -> str:
    """Return the policy in force as ``%policy`` shows it."""
    fields = sandbox.policy.as_dict() | {"backend": sandbox.backend}
    worth = tuple(sandbox.enforcement.values())
    return str(policy_card.policy_table(fields, worth, sandbox.gaps, {})["text/plain"])


def _enforcement(sandbox: AsyncSandbox) -> str:
    """Return how far each capability is enforced, and the gaps, as JSON."""
    capabilities = {
        name: {
            "status": str(enforcement.status),
            "mechanism": enforcement.mechanism,
            "holes": list(enforcement.holes),
        }
        for name, enforcement in sandbox.enforcement.items()
    }
    gaps = [policy_card.gap_line(gap) for gap in sandbox.gaps]
    report = {"backend": sandbox.backend, "capabilities": capabilities, "gaps": gaps}
    return encodable(json.dumps(report, indent=1))


def _audit_tail(sandbox: AsyncSandbox) -> str:
    """Return the last records of the session's audit log, as JSON Lines; "" without a log.

    They are bounded in bytes too, since a record may have a long source.
    """
    if not sandbox.session:
        return ""
    session_log = log.find(Path(sandbox.policy.audit.folder), sandbox.session)
    tail = deque[bytes](maxlen=MAX_RECORDS)
    tail.extend(log.lines(session_log.file))
    while sum(map(len, tail)) > MAX_LOG:
        tail.popleft()
    return encodable(b"".join(tail).decode("utf-8", "replace"))


def _artifact_contents(artifact: Artifact) -> Contents:
    """Return the contents of a file that was copied out. Raises CellblockError."""
    try:
        fd = os.open(artifact.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            content = file.read(MAX_ARTIFACT + 1)
    except OSError as error:
        raise CellblockError(f"{visible(artifact.name)}: {error.strerror}") from None
    if len(content) > MAX_ARTIFACT:
        path = visible(artifact.path)
        raise CellblockError(f"it has more than {MAX_ARTIFACT:,} bytes; it lies at {path}")
    return Contents(artifact.content_type, blob=content)


#: The types that a client may hear. Other texts, HTML among them, are called plain text, and other
#: files are called bytes, so that no client runs or renders what a cell wrote.
_TEXTS: Final = ("text/csv", "text/markdown", "text/plain", "application/json")
_PICTURES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")
_PLAIN = "text/plain"
_BYTES = "application/octet-stream"


def _shows_files(sandbox: AsyncSandbox) -> bool:
    """Return whether a client may read files directly.

    If the policy admits only approved cells, a client gets only what such cells show.
    """
    return sandbox.policy.admission == "any"


async def _file_contents(sandbox: AsyncSandbox, name: str) -> Contents:
    """Return a file of cells: as text if it has only printable text, else as bytes.

    Text with control characters, which could act on a terminal, counts as bytes.
    """
    content = await sandbox.read(name, max_bytes=MAX_ARTIFACT)
    kind = content_type(name)
    with contextlib.suppress(UnicodeDecodeError):
        text = content.decode()
        if text.replace("\r\n", "\n").translate(dict.fromkeys(b"\t\n")).isprintable():
            return Contents(kind if kind in _TEXTS else _PLAIN, text)
    return Contents(kind if kind in _PICTURES else _BYTES, blob=content)


def _file_link(file: File) -> Link:
    name = encodable(visible(file.name))
    uri = f"{_SCHEME}files/{quote(os.fsencode(file.name))}"
    kind = content_type(file.name)
    if kind not in (*_TEXTS, *_PICTURES):
        kind = _BYTES if kind.startswith(("application/", "audio/", "video/")) else _PLAIN
    return Link(uri, name, kind, file.size)


def _plot_link(number: int, image: Image) -> Link:
    size = len(image.data) * 3 // 4
    return Link(f"{_SCHEME}plots/{number}", f"plot {number}", image.mime_type, size)


def _artifact_link(number: str, artifact: Artifact) -> Link:
    name = encodable(visible(artifact.name))
    return Link(f"{_SCHEME}artifacts/{number}", name, artifact.content_type, artifact.size_bytes)


def _question(request: ApprovalRequest) -> str:
    """Return the text of a form: the request, its names or arguments, and what "session" allows.

    A short request takes three lines, because clients show little of a long message. A longer one
    is not compressed, so that the person sees all of it. The cell follows, indented, so that no
    line of the cell looks like a line of the question.
    """
    asks, *details = request.text.split("\n")
    names = ", ".join(map(visible, request.names))
    later = f"import {names} in any cell"
    if request.kind == "call":
        later = f"call {names} in any cell, whatever the arguments"
    source = textwrap.indent(visible_lines(clipped(request.source, MAX_SOURCE)), "    ")
    return "\n".join(
        [
            f"M{asks.removeprefix('m')}",
            *(_arguments if request.kind == "call" else _imports)(details),
            f"Yes, for this session: {later}.",
            "",
            "The cell, which a model wrote:",
            "",
            source,
        ]
    )


def _arguments(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines of a call's arguments joined into one, if each is short and unambiguous."""
    joined = ", ".join(line.removeprefix("  ") for line in lines)
    alone = all(map(_ARGUMENT.fullmatch, lines))
    return [f"  {joined}"] if lines and alone and len(joined) <= MAX_ARGUMENTS else lines


def _imports(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines of an import joined into one, if there is one module and they are short.

    The lines are the module's name, and the host's remarks on the module.
    """
    name, *remarks = lines
    is_single = _ARGUMENT.fullmatch(name) and all(line.startswith("      ") for line in remarks)
    joined = f"{name}: {' '.join(map(str.strip, remarks))}" if remarks else name
    return [joined] if is_single and len(joined) <= MAX_ARGUMENTS else lines


#: The reason of a no. It is true of an answer, of a form that was dismissed, and of a question that
#: nobody answered in time.
_NOT_ALLOWED: Final = "the person at the client was asked, and did not allow it"


def _unasked_answer(request: ApprovalRequest) -> No:
    """Return the no of a client that can ask nobody; it says what the operator can do instead."""
    if request.kind == "import":
        tops = sorted({name.partition(".")[0] for name in request.names})
        line = f"add.allowed_modules = {json.dumps(tops)}"
    else:
        line = 'approvals = "never"'
    nobody = "nobody could be asked: this MCP client has no elicitation. The operator can allow it"
    explanation = encodable(f"{nobody}, unasked, with {visible(line)} in the policy")
    names = encodable(", ".join(map(visible, request.names)))
    remedy = f"Do without {names}. {explanation[0].upper()}{explanation[1:]}."
    return No(why=explanation, remedy=remedy, asked=False)
