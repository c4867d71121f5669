"""One client's session: a sandbox, the tools and resources over it, and questions to a person."""

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


#: Characters of one reply's text, and of a progress notification's.
MAX_TEXT: Final = 16_000
MAX_PROGRESS: Final = 1_000
#: Characters of where the rest of a reply is.
_MAX_WHERE: Final = 400
#: Characters of all that is explained at once, and of why a cell was refused among it at least.
MIN_REFUSAL: Final = 1_000
#: Images that can be read as resources, and bytes of all of them. A reply has smaller versions.
MAX_PLOTS: Final = 32
MAX_PLOT_BYTES: Final = 32 << 20
#: Bytes of a file that is read as a resource; artifacts, and files of cells, that are listed.
MAX_ARTIFACT: Final = 4 << 20
MAX_ARTIFACTS: Final = 200
MAX_FILES: Final = 200
#: Calls under way, those that wait for a person among them.
MAX_CALLS: Final = 32
#: Records of the audit log and bytes of them, variables and changes that are shown.
MAX_RECORDS: Final = 100
MAX_LOG: Final = 1 << 20
MAX_VARIABLES: Final = 200
MAX_CHANGES: Final = 100
#: Characters of what is said of questions, and seconds that a cell may be given.
MAX_NOTES: Final = 2_000
MAX_SECONDS: Final = 1_000_000
#: Characters of a cell's source in a question, and seconds that a question stays open.
MAX_SOURCE: Final = 2_000
ANSWER_TIMEOUT: Final = 600.0
#: Characters of arguments that are put into one line of a question.
MAX_ARGUMENTS: Final = 160
#: Seconds that it has left once its client has made another call instead of coming back.
AWAY_TIMEOUT: Final = 60.0
#: Cells that run side by side (``TryVariants`` says so), and characters told of each; branches
#: that are open.
MAX_VARIANTS: Final = 8
MAX_BRANCHES: Final = 8
_OF_VARIANT: Final = 2_000
#: A number that a cell ends with, NumPy's too, and characters of one.
_NUMBER: Final = re.compile(r"(?:np\.\w+\()?([^()]+)\)?")
MAX_NUMBER: Final = 100
#: A line of a question that is an argument whose value looks like no other one, however it is read,
#: and does not go on in the next line, which a mark would say.
_ARGUMENT: Final = re.compile(r"  \S+ = [^,=\u00ac]+")


# --- what the model may ask -----------------------------------------------------------------------

#: What it is ``Fork`` says, once: the list of tools is in each request to a model.
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


#: The tools by name: what each takes, and whether it changes nothing.
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


# --- what it gets ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Link:
    """A resource of this session's that a reply names."""

    uri: str
    name: str
    mime_type: str
    size: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A tool's reply: text for the model, images, and the same as data without the text."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)
    images: tuple[Image, ...] = ()
    links: tuple[Link, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Contents:
    """A resource's contents: text, or bytes."""

    mime_type: str
    text: str = ""
    blob: bytes | None = None


Answer = Literal["once", "session", "no"]


class Question:
    """Something that a person is to say; ``offers`` are the answers that there are, ``no`` first.

    Whoever asked waits for ``answer`` to be called, and takes no answer for a no.
    """

    def __init__(self, text: str, offers: tuple[Answer, ...]) -> None:
        self.text, self.offers = text, offers
        #: Tells an answer to this question from one to any other.
        self.token = secrets.token_hex(16)
        #: Done when it is answered, or nobody waits for that any more.
        self.closed: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered, and somebody waits."""
        return not self.closed.done()

    def answer(self, answer: object) -> None:
        """Give an answer; one that was not offered is a no."""
        if self.is_open:
            found: list[Answer] = [one for one in self.offers if one == answer]
            self.closed.set_result(found[0] if found else "no")

    async def wait(self) -> Answer:
        """Return the answer."""
        try:
            return await asyncio.wait_for(self.closed, ANSWER_TIMEOUT)
        except TimeoutError:
            return "no"


class ToolCall:
    """A tool's call under way, in a task of its own: it goes on while a person is asked.

    ``can_ask`` says whether the client that made it can ask a person.
    """

    def __init__(self, *, can_ask: bool) -> None:
        self.can_ask = can_ask
        #: Names this call to the client that is to come back with a person's answer.
        self.token = secrets.token_hex(16)
        self.question: Question | None = None
        #: Whether its questions are handed out, to a client that is to come back with the answers.
        self.is_handed_out = False
        #: Variants ask at the same time; the person is asked one thing after the other.
        self._asking = asyncio.Lock()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[Reply] | None = None

    def start(self, work: Coroutine[Any, Any, Reply]) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(lambda _: self._changed.set())

    async def ask(self, text: str, *offers: Answer) -> Answer:
        """Have a person asked, by whoever waits in ``next``."""
        async with self._asking:
            self.question = question = Question(text, ("no", *offers))
            self._changed.set()
            try:
                return await question.wait()
            finally:
                self.question = None

    async def next(self) -> Reply | Question:
        """Wait for the reply, or a question that is to be put before there is one."""
        while True:
            if self._task is not None and self._task.done():
                return self._task.result()
            if self.question is not None and self.question.is_open:
                return self.question
            self._changed.clear()
            await self._changed.wait()

    @property
    def has_ended(self) -> bool:
        """Whether there is a reply, taken or not."""
        return self._task is not None and self._task.done()

    def cancel(self) -> None:
        """Give up: a cell is interrupted, and killed if it goes on."""
        if self._task is not None:
            self._task.cancel()


class Session:
    """One client's sandbox. ``open`` begins to start it; the first tool waits until it is ready."""

    def __init__(self, pool: AsyncSandboxPool) -> None:
        self._pool = pool
        pool.answered_by, pool.kept_by = PERSON, tables.BY_TOOL
        self._sandbox: AsyncSandbox | None = None
        #: Forks that share its files, by name.
        self._branches: dict[str, AsyncSandbox] = {}
        self._opening: asyncio.Task[AsyncSandbox] | None = None
        #: One tool at a time has the sandbox.
        self._lock = asyncio.Lock()
        self._running: ToolCall | None = None
        self._calls: dict[str, ToolCall] = {}
        #: What came of the last call that ran cells; several of variants of which none was kept.
        self._last: tuple[Result, ...] = ()
        self._plots: deque[tuple[int, Image]] = deque()
        self._plot_numbers = itertools.count(1)
        self._artifacts: dict[str, Artifact] = {}
        self._artifact_numbers = itertools.count(1)
        #: What cells made or changed, as it was when no call was under way.
        self._files: tuple[File, ...] = ()
        self._told_changes = ToldChanges()

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def open(self) -> None:
        """Begin to start the sandbox."""
        self._opening = asyncio.get_running_loop().create_task(self._start())
        # Whoever needs it is told why there is none; if nobody does, nobody is.
        self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _start(self) -> AsyncSandbox:
        await self._pool.open()
        asks = self._pool.config.policy.approvals == "prompt"
        # A pool whose sandboxes can't share a zygote has each open one of its own.
        former = self._sandbox
        self._sandbox = sandbox = self._pool.sandbox(approve=self._approve if asks else None)
        if former is not None:
            sandbox.log_written = former.log_written
        await sandbox.open()
        return sandbox

    async def sandbox(self) -> AsyncSandbox:
        """Return the sandbox, once it is ready. Raises CellblockError."""
        if self._opening is None:
            raise CellblockError("the session has ended")
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """End the sandbox, and all calls."""
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
        """Begin a tool's call; ``report`` gets what a cell says as it runs.

        Whoever begins it ends it. Raises KeyError for no such tool, CellblockError for too many
        calls, msgspec.ValidationError for arguments that don't fit.
        """
        kind, _ = TOOLS[name]
        # Some clients send null for what their model has left out (CrewAI).
        given = {key: value for key, value in arguments.items() if value is not None}
        asked = msgspec.convert(given, kind)
        if len(self._calls) >= MAX_CALLS:
            # Those that ended, and whose client has not come back for the reply, are forgotten.
            self._calls = {token: one for token, one in self._calls.items() if not one.has_ended}
        if len(self._calls) >= MAX_CALLS:
            raise CellblockError(f"{MAX_CALLS} calls are under way: wait for one of them")
        for one in self._calls.values():
            if one.question is not None and one.is_handed_out:
                asyncio.get_running_loop().call_later(AWAY_TIMEOUT, one.question.answer, "no")
        call = ToolCall(can_ask=can_ask)
        self._calls[call.token] = call
        call.start(self._serve(call, asked, report))
        return call

    def resume(self, token: str) -> ToolCall | None:
        """Return the call that waits for a person's answer."""
        return self._calls.get(token)

    def end(self, call: ToolCall) -> None:
        """Forget a call whose reply was taken; give up one that nobody waits for."""
        self._calls.pop(call.token, None)
        call.cancel()

    async def _serve(
        self, call: ToolCall, asked: Any, report: Callable[[str], Awaitable[None]] | None
    ) -> Reply:
        async with self._lock:
            self._running = call
            try:
                return await self._answer(call, asked, report)
            except CellblockError as error:
                return _failed(str(error))
            finally:
                self._running = None

    async def _answer(
        self, call: ToolCall, asked: Any, report: Callable[[str], Awaitable[None]] | None
    ) -> Reply:
        sandbox = await self.sandbox()
        match asked:
            case RunCell():
                reply = await self._run_cell(sandbox, call, asked, report)
            case Undo(cells=cells, branch=branch):
                where = self._branch(sandbox, branch)
                self._last = ()
                undone = await where.execute(f"%undo {cells}", may_ask=False)
                reply = await self._told(where, undone)
            case Fork(name=name, action=action):
                reply = await self._fork(sandbox, name, action)
            case TryVariants():
                reply = await self._try_variants(sandbox, call, asked)
            case Reset():
                reply = await self._reset(sandbox)
            case Variables(branch=branch):
                reply = _variables(await self._branch(sandbox, branch).variables())
            case Changes(paths=paths, diff=diff):
                staged = await sandbox.changes(paths)
                reply = await in_thread(_changes, sandbox.listable, staged, diff=diff)
            case Keep(paths=paths):
                reply = await self._keep(call, sandbox.listable, paths)
            case EarlierOutput(cell=cell, stream=stream, page=page, branch=branch):
                which = "" if cell is None else f"{cell} {stream or ''} {page}"
                shown = self._branch(sandbox, branch).earlier_output(which, of_tool=True)
                is_page = cell is not None and shown.startswith(Heading.PAGE.format(number=cell))
                reply = Reply(_bounded(_page(shown) if is_page else shown))
            case _:
                reply = self._explain(sandbox, asked.topic)
        return reply

    def _branch(self, sandbox: AsyncSandbox, name: str) -> AsyncSandbox:
        """Return the sandbox of a branch; the session's own for no name."""
        if name and name not in self._branches:
            known = ", ".join(self._branches) or "none"
            raise CellblockError(f"there is no branch {name!r}; there are: {known}")
        return self._branches[name] if name else sandbox

    async def _fork(self, sandbox: AsyncSandbox, name: str, action: str) -> Reply:
        """Start a branch, go on from one, or end one."""
        if action != "start":
            fork = self._branch(sandbox, name)
            if action == "pick":
                await sandbox.go_on_from(fork)
            del self._branches[name]
            await fork.close()
            told = Heading.DROPPED.format(name=name)
            if action == "pick":
                told = f"{Heading.PICKED.format(name=name)}, which has ended. Branches: "
        else:
            if name in self._branches:
                raise CellblockError(f"there is a branch {name!r} already: pick or drop it first")
            if len(self._branches) >= MAX_BRANCHES:
                raise CellblockError(f"{MAX_BRANCHES} branches are open: pick or drop one first")
            (self._branches[name],) = await sandbox.fork(shares_files=True)
            told = f"{Heading.BRANCHED.format(name=name)}. Branches: "
        branches = list(self._branches)
        return Reply(f"{told}{', '.join(branches) or 'none'}.", {"branches": branches})

    async def _try_variants(
        self, sandbox: AsyncSandbox, call: ToolCall, asked: TryVariants
    ) -> Reply:
        """Run variants, and return what came of each, with the first pictures of them all."""
        self._last = ()
        choose, codes = functools.partial(_choose, asked.keep), map(without_fence, asked.codes)
        assigned = list[str]()

        async def look(fork: AsyncSandbox, result: Result) -> None:
            assigned.append(await _assigned(fork, result))

        found = await sandbox.look_at_variants(
            list(codes), choose, timeout=asked.timeout, look=look
        )
        self._last = found.results if found.kept is None else (found.results[found.kept],)
        shown, images = list[_Variant](), list[Image]()
        most = MAX_PLOTS // max(1, len(found.results))
        for one, name in zip(found.results, assigned, strict=True):
            plots = await in_thread(list, pictures(one))
            links = tuple(map(self._add_plot, plots[:most]))
            got = await sandbox.images(one) if links and len(images) < MAX_IMAGES else ()
            got = got[: MAX_IMAGES - len(images)]
            sent, more = tuple(each.number for each in got), len(plots) - len(links)
            shown.append(_Variant(one, name, links, sent, more))
            images += got
        staged = await self._newly_staged(sandbox, call)
        return await in_thread(_variants, found.kept, shown, images, staged)

    async def _run_cell(
        self,
        sandbox: AsyncSandbox,
        call: ToolCall,
        asked: RunCell,
        report: Callable[[str], Awaitable[None]] | None,
    ) -> Reply:
        where = self._branch(sandbox, asked.branch)
        self._last = ()
        result = await self._run(where, asked.code, asked.timeout, report)
        assigned = await _assigned(where, result)
        return await self._told(where, result, assigned, await self._newly_staged(sandbox, call))

    async def _run(
        self,
        sandbox: AsyncSandbox,
        code: str,
        seconds: float | None,
        report: Callable[[str], Awaitable[None]] | None,
    ) -> Result:
        if report is None:
            return await sandbox.execute(without_fence(code), timeout=seconds)
        said = Progress(report)
        reporting = asyncio.get_running_loop().create_task(said.serve())
        try:
            return await sandbox.execute(without_fence(code), timeout=seconds, on_output=said.add)
        finally:
            reporting.cancel()

    async def _reset(self, sandbox: AsyncSandbox) -> Reply:
        sandbox.check_budgets("reset is", "Delete the variables instead, or undo cells.")
        staged, left = sandbox.listable, ""
        if staged is not None and await in_thread(staged.is_written_to):
            left = f" A person can keep what was staged: cellblock changes keep {staged.id}"
        await sandbox.close()
        self._branches.clear()
        self._last, self._files = (), ()
        self._told_changes = ToldChanges()
        self.open()
        await self.sandbox()
        return Reply(f"{Heading.NEW}it has no variables, and nothing is staged.{left}")

    # --- results ----------------------------------------------------------------------------------

    async def _newly_staged(self, sandbox: AsyncSandbox, call: ToolCall) -> str:
        """Return lines on staged files that changed since the last reply."""
        staged = sandbox.listable
        if staged is None:
            return ""
        how = "The tool keep asks a person to do the same in the project."
        if not call.can_ask:  # nothing behind the command: it is pasted
            command = f"cellblock changes keep {staged.id}"
            how = f"In a terminal a person can do the same in the project: {command}"
        return await in_thread(self._told_changes.news, staged, how)

    async def _told(
        self, sandbox: AsyncSandbox, result: Result, assigned: str = "", staged: str = ""
    ) -> Reply:
        """Return a cell's result as a reply; what that leaves out, the tool ``output`` has."""
        self._last = (result,)
        images = await sandbox.images(result)
        found = await in_thread(list, pictures(result))
        plots = [(image, self._add_plot(image)) for image in found[:MAX_PLOTS]]
        artifacts = [self._add_artifact(one) for one in result.artifacts[:MAX_ARTIFACTS]]
        # Some clients hand their model the text or the data alone, without the pictures themselves.
        uris = [link.uri for _, link in plots]
        missing = not_sent(uris, (one.number for one in images), more=len(found) - len(plots))
        notes = [assigned, _pictures_at(uris), missing, staged]
        text, is_whole = await in_thread(_text_of, result, MAX_TEXT - _length(notes))
        if not is_whole:
            cleared = any(one.kind == "clear_output" for one in result.outputs)
            gaps = {} if cleared else before_gaps(text)
            if where := sandbox.keep_output(gaps, of_tool=True):
                notes.append(f"{Heading.MORE}{where}.")
        links = [link for image, link in plots if image not in images]
        return Reply(
            _bounded("\n\n".join(filter(None, (text, *notes)))),
            _data(result, [*uris, *(one.uri for one in artifacts)]),
            images,
            (*links, *artifacts),
            failed=not result.success,
        )

    def _add_plot(self, image: Image) -> Link:
        number = next(self._plot_numbers)
        self._plots.append((number, image))
        while (
            len(self._plots) > MAX_PLOTS
            or sum(len(one.data) for _, one in self._plots) > MAX_PLOT_BYTES
        ) and len(self._plots) > 1:
            self._plots.popleft()
        return _plot_link(number, image)

    def _add_artifact(self, artifact: Artifact) -> Link:
        known = (key for key, one in self._artifacts.items() if one.path == artifact.path)
        number = next(known, None) or f"{next(self._artifact_numbers)}"
        self._artifacts[number] = artifact
        while len(self._artifacts) > MAX_ARTIFACTS:
            del self._artifacts[next(iter(self._artifacts))]
        return _artifact_link(number, artifact)

    def _explain(self, sandbox: AsyncSandbox, topic: str) -> Reply:
        parts = list[str]()
        if topic in ("all", "tools"):
            parts.append(tools_text(sandbox))
        if topic in ("all", "policy"):
            parts.append(policy_text(sandbox))
        if topic in ("all", "refusal"):
            room = max(MIN_REFUSAL, MAX_EXPLAINED - sum(len(part) + 2 for part in parts))
            failed = [one for one in self._last if not one.success]
            why = [ending(one, room // len(failed) - 2) for one in failed]
            parts = [*(why or [str(Heading.NOT_REFUSED)]), *parts]
        # Of a topic by itself there is more.
        most = MAX_EXPLAINED if topic == "all" else MAX_TEXT
        return Reply(_bounded(clipped("\n\n".join(parts), most)))

    # --- what takes a person's consent ------------------------------------------------------------

    async def _approve(self, request: ApprovalRequest) -> str | No:
        """Ask the person at the client; where nobody can be asked, say what the operator can do."""
        call = self._running
        if call is None or not call.can_ask:
            return _unasked(request)
        answer = await call.ask(_question(request), *request.offers)
        if answer != "no":
            return answer
        without = ", ".join(map(visible, request.names))
        return No(why=_NOT_ALLOWED, remedy=f"Do without {without}: {_NOT_ALLOWED}.")

    async def _keep(self, call: ToolCall, staged: Staged | None, paths: Sequence[str]) -> Reply:
        """Keep what a person says yes to: exactly what was shown."""
        if staged is None:
            raise ChangesError("nothing is staged under this policy")
        chosen = await in_thread(staged.chosen, paths)
        if not chosen:
            raise ChangesError("nothing is staged that could be kept")
        if not call.can_ask:
            command = shlex.join([staged.id, *staged.named(paths)])
            raise ChangesError(
                f"{Heading.NOT_KEPT}it is a person's to say, and this client can't ask one. In a "
                f"terminal: cellblock changes keep {command}"
            )
        digests = await in_thread(lambda: changes.finish(keeping.digests(staged, chosen)))
        wanted = of_keeping(chosen, digests, paths)
        if not wanted.whole:
            raise ChangesError(f"{Heading.NOT_KEPT}{too_many(chosen)}")
        asks = f"May this session {wanted.asks}"
        text = "\n".join([asks, *wanted.shown, "Yes, once: they are written to your project."])
        if await call.ask(text, "once") == "no":
            raise ChangesError(f"{Heading.NOT_KEPT}{_NOT_ALLOWED}")
        exactly = keeping.token(chosen, digests)
        kept = await in_thread(
            lambda: keeping.keep(staged, paths, by="an MCP client's user", exactly=exactly)
        )
        names = [visible(one.change.name) for one in kept]
        return Reply(_listed(names), {"kept": names[:MAX_CHANGES]})

    # --- resources --------------------------------------------------------------------------------

    async def resources(self) -> list[tuple[Link, str]]:
        """Return what can be read, and what each is; without waiting for a cell that runs."""
        if self._opening is not None and self._opening.done() and not self._lock.locked():
            async with self._lock:  # a call that comes meanwhile waits for this, not this for it
                with contextlib.suppress(CellblockError):
                    sandbox = await self.sandbox()
                    if _shows_files(sandbox):
                        self._files = await sandbox.files(changed=True)
        fixed = [(Link(uri, name, kind, 0), what) for uri, name, kind, what in _RESOURCES]
        plots = [(_plot_link(*one), "A picture that a cell showed.") for one in self._plots]
        files = [
            (_artifact_link(number, one), "A file that a cell wrote, copied out.")
            for number, one in self._artifacts.items()
        ]
        made = [
            (_file_link(one), "A file that cells made or changed.")
            for one in self._files[:MAX_FILES]
        ]
        return [*fixed, *plots, *files, *made]

    async def read(self, uri: str) -> Contents:
        """Return a resource's contents. Raises KeyError for none, CellblockError."""
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
        """Return the contents of a resource that each session has."""
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
    """What a cell prints, handed on in pieces: at most ten a second, each bounded."""

    _PAUSE: Final = 0.1

    def __init__(self, report: Callable[[str], Awaitable[None]]) -> None:
        self._report = report
        self._text, self._more = "", asyncio.Event()

    def add(self, output: Output) -> None:
        """Take an output; only the end of what is said at once is kept."""
        if output.kind == "stream":
            self._text = (self._text + str(output.content["text"]))[-MAX_PROGRESS:]
            self._more.set()

    async def serve(self) -> None:
        """Report, until cancelled; a client that is gone is told nothing."""
        with contextlib.suppress(Exception):
            while True:
                await self._more.wait()
                self._more.clear()
                text, self._text = _bounded(self._text), ""
                await self._report(text)
                await asyncio.sleep(self._PAUSE)


# --- texts ----------------------------------------------------------------------------------------

_SCHEME: Final = "cellblock://"
#: Names any file where cells begin, by its name there (RFC 6570).
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
    """Return text for a client: nothing in it moves a cursor, reorders a line or hides."""
    return encodable(clipped(verbatim_lines(without_styles(text)), MAX_TEXT))


def _failed(text: str) -> Reply:
    return Reply(_bounded(text), {"status": "failed"}, failed=True)


def _listed(kept: Sequence[str]) -> str:
    head, more = Heading.KEPT.format(number=len(kept)), len(kept) - MAX_CHANGES
    return _bounded("\n".join([head, *kept[:MAX_CHANGES], *([f"and {more} more"] * (more > 0))]))


def _text_of(result: Result, room: int) -> tuple[str, bool]:
    """Return a result's text, and whether that is all; else there is room for where the rest is.

    It takes seconds for what some cells show: a thread's, for the loop serves other clients.
    """
    text, is_whole = text_within(result, room)
    return (text, True) if is_whole else (result.to_string(room - _MAX_WHERE), False)


def _data(result: Result, uris: list[str]) -> dict[str, Any]:
    """Return how a cell ended, as data: what it said is in the text."""
    found: dict[str, Any] = {"status": result.status, "execution_count": result.execution_count}
    if result.error is not None:
        found["error"] = {"type": result.error.type}
    if result.denials:
        found["denials"] = [{"rule": one.rule, "line": one.line} for one in result.denials[:20]]
    if result.stop is not None:
        found["stop"] = {"why": result.stop.why, "variables": result.stop.state}
    if result.tool_calls:
        found["tool_calls"] = len(result.tool_calls) + result.tool_calls_left_out
    if result.left_out:
        found["left_out"] = dict(result.left_out)
    if uris:
        found["resources"] = uris
    return found


def _choose(keep: str, results: Sequence[Result]) -> int | None:
    """Return the number of the cell to keep; None where none succeeded, or gave a number."""
    succeeded = [at for at, one in enumerate(results) if one.success]
    if keep == "first":
        return min(succeeded, default=None)
    numbers = dict[int, float]()
    for at in succeeded:
        with contextlib.suppress(ValueError):
            shown = _NUMBER.fullmatch(clipped(results[at].result or "", MAX_NUMBER))
            if shown and not math.isnan(number := float(shown[1])):
                numbers[at] = number if keep == "largest" else -number
    return max(numbers, key=lambda at: numbers[at], default=None)


def _why_none(results: Sequence[Result]) -> str:
    """Return why no variant was kept, for which those that succeeded must have shown no number."""
    why = "none succeeded"
    if any(one.success for one in results):
        why = "none that succeeded ends in an expression whose value is a number"
    return f"none, as {why}: variables are as they were"


def _pictures_at(uris: Sequence[str]) -> str:
    shown = ", ".join(uris)
    return f"{Heading.PICTURES_AT}{shown}." if shown else ""


def _length(notes: Sequence[str]) -> int:
    """Return how many characters notes take behind a text."""
    return sum(len(note) + 2 for note in notes if note)


@dataclass(frozen=True, slots=True)
class _Variant:
    """What came of a variant: its pictures, and the numbers of those that the reply has."""

    result: Result
    assigned: str
    plots: tuple[Link, ...]
    sent: tuple[int, ...]
    #: Pictures beyond those.
    more: int


def _variants(
    kept: int | None, variants: Sequence[_Variant], images: Sequence[Image], staged: str
) -> Reply:
    """Return what came of each variant; ``images`` are the first pictures of all of them."""
    why = f"{kept + 1}" if kept is not None else _why_none([one.result for one in variants])
    told = [f"{Heading.VARIANT_KEPT}{why}."]
    is_cut, before = False, 0
    for number, one in enumerate(variants, 1):
        text, is_whole = text_within(one.result, _OF_VARIANT)
        is_cut |= not is_whole
        told.append(f"{Heading.VARIANT.format(number=number)}{text}")
        names = [link.uri for link in one.plots]
        notes = [one.assigned, _pictures_at(names), _sent_of(before, len(one.sent))]
        told += filter(None, [*notes, not_sent(names, one.sent, more=one.more)])
        before += len(one.sent)
    if is_cut:
        cut = Heading.SHORTENED.format(number=f"{_OF_VARIANT:,}")
        told.append(f"{cut} each: print less, or run the cell of one by run_cell.")
    told += filter(None, [staged])
    links = tuple(link for one in variants for link in one.plots)
    text = _bounded("\n\n".join(told))
    return Reply(text, images=tuple(images), links=links, failed=kept is None)


def _sent_of(before: int, sent: int) -> str:
    """Return which of a reply's pictures are a variant's, behind so many of others."""
    if not sent:
        return ""
    numbers = f"{before + 1}" if sent == 1 else f"{before + 1} to {before + sent}"
    return f"{Heading.PICTURES_OF_REPLY}{numbers}."


async def _assigned(sandbox: AsyncSandbox, result: Result) -> str:
    """Return a sentence on what a cell assigned that showed nothing, if there is one."""
    name = assigned_name(result)
    return assigned_text(name, await sandbox.variables()) if name else ""


_LINES_OF_A_PAGE: Final = 2


def _page(shown: str) -> str:
    """Return a page of earlier output with the cell's text as it was printed, below the host's.

    The host's are a title, and which page of how many it is.
    """
    *said, text = shown.split("\n", _LINES_OF_A_PAGE)
    return "\n".join([*said, beneath(text)]) if len(said) > 1 else shown


def _variables(found: Sequence[Any]) -> Reply:
    shown = found[:MAX_VARIABLES]
    lines = list(map(variable_line, shown))
    if len(found) > len(shown):
        lines.append(f"and {len(found) - len(shown)} more")
    data = [
        {"name": v.name, "type": v.type, "shape": shape_words(v)}
        | ({"bytes": v.size} if v.size else {})
        for v in shown
    ]
    return Reply(_bounded("\n".join(lines) or str(Heading.NO_VARIABLES)), {"variables": data})


def _changes(staged: Staged | None, found: Sequence[Change], *, diff: bool) -> Reply:
    if staged is None:
        return Reply(str(Heading.NOTHING_STAGED), {"changes": []})
    lines, data = list[str](), list[dict[str, Any]]()
    for one in found[:MAX_CHANGES]:
        name = visible(one.name)
        never = f" (never kept: {one.why_not})" if one.why_not else ""
        never_of = {"never_kept": one.why_not} if one.why_not else {}
        size = "" if one.size is None else f", {count(one.size, 'byte')}"
        lines.append(f"{one.kind}: {name}{size}{never}")
        if diff:
            lines.append(textwrap.indent(visible_lines(staged.diff(one).text), "  "))
        size_of = {} if one.size is None else {"bytes": one.size}
        data.append({"path": name, "kind": one.kind, **size_of, **never_of})
    if not lines:
        return Reply(str(Heading.NOTHING_WRITTEN), {"changes": []})
    if len(found) > len(data):
        lines.append(f"and {len(found) - len(data)} more")
    return Reply(_bounded("\n".join(lines)), {"changes": data})


def _policy_text(sandbox: AsyncSandbox) -> str:
    fields = sandbox.policy.as_dict() | {"backend": sandbox.backend}
    worth = tuple(sandbox.enforcement.values())
    return str(policy_card.policy_table(fields, worth, sandbox.gaps, {})["text/plain"])


def _enforcement(sandbox: AsyncSandbox) -> str:
    found = {
        name: {"status": str(each.status), "mechanism": each.mechanism, "holes": list(each.holes)}
        for name, each in sandbox.enforcement.items()
    }
    gaps = [policy_card.gap_line(gap) for gap in sandbox.gaps]
    shown = {"backend": sandbox.backend, "capabilities": found, "gaps": gaps}
    return encodable(json.dumps(shown, indent=1))


def _audit_tail(sandbox: AsyncSandbox) -> str:
    """Return the last records of the session's audit log, as JSON Lines: a source may be long."""
    if not sandbox.session:
        return ""
    found = log.find(Path(sandbox.policy.audit.folder), sandbox.session)
    tail = deque[bytes](maxlen=MAX_RECORDS)
    tail.extend(log.lines(found.file))
    while sum(map(len, tail)) > MAX_LOG:
        tail.popleft()
    return encodable(b"".join(tail).decode("utf-8", "replace"))


def _artifact_contents(artifact: Artifact) -> Contents:
    """Return a file that was copied out. Raises CellblockError."""
    try:
        fd = os.open(artifact.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            content = file.read(MAX_ARTIFACT + 1)
    except OSError as error:
        raise CellblockError(f"{visible(artifact.name)}: {error.strerror}") from None
    if len(content) > MAX_ARTIFACT:
        where = visible(artifact.path)
        raise CellblockError(f"it has more than {MAX_ARTIFACT:,} bytes; it lies at {where}")
    return Contents(artifact.content_type, blob=content)


#: Types that a client may be told of. Other texts, HTML among them, are plain text, and what is no
#: text is bytes: no client is to run what a cell wrote.
_TEXTS: Final = ("text/csv", "text/markdown", "text/plain", "application/json")
_PICTURES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")
_PLAIN, _BYTES = "text/plain", "application/octet-stream"


def _shows_files(sandbox: AsyncSandbox) -> bool:
    """Return whether a client may read files by itself.

    Where cells are admitted one by one, it gets what those show.
    """
    return sandbox.policy.admission == "any"


async def _file_contents(sandbox: AsyncSandbox, name: str) -> Contents:
    """Return a file of cells: as text where that is all, with nothing that acts on a terminal."""
    content, kind = await sandbox.read(name, max_bytes=MAX_ARTIFACT), content_type(name)
    with contextlib.suppress(UnicodeDecodeError):
        text = content.decode()
        if text.replace("\r\n", "\n").translate(dict.fromkeys(b"\t\n")).isprintable():
            return Contents(kind if kind in _TEXTS else _PLAIN, text)
    return Contents(kind if kind in _PICTURES else _BYTES, blob=content)


def _file_link(one: File) -> Link:
    name = encodable(visible(one.name))
    uri = f"{_SCHEME}files/{quote(os.fsencode(one.name))}"
    kind = content_type(one.name)
    if kind not in (*_TEXTS, *_PICTURES):
        kind = _BYTES if kind.startswith(("application/", "audio/", "video/")) else _PLAIN
    return Link(uri, name, kind, one.size)


def _plot_link(number: int, image: Image) -> Link:
    size = len(image.data) * 3 // 4
    return Link(f"{_SCHEME}plots/{number}", f"plot {number}", image.mime_type, size)


def _artifact_link(number: str, one: Artifact) -> Link:
    name = encodable(visible(one.name))
    return Link(f"{_SCHEME}artifacts/{number}", name, one.content_type, one.size_bytes)


def _question(request: ApprovalRequest) -> str:
    """Return a question for a form: what is asked, of what, and what a lasting yes would allow.

    These are three lines where little is asked, as clients show little of a long message.
    Whatever is longer stays as it is laid out: what can't be seen is not agreed to. Then comes the
    cell, indented, so that no line of it looks like one of the question's.
    """
    asks, *shown = request.text.split("\n")
    names = ", ".join(map(visible, request.names))
    later = f"import {names} in any cell"
    if request.kind == "call":
        later = f"call {names} in any cell, whatever the arguments"
    source = textwrap.indent(visible_lines(clipped(request.source, MAX_SOURCE)), "    ")
    return "\n".join(
        [
            f"M{asks.removeprefix('m')}",
            *(_arguments if request.kind == "call" else _imports)(shown),
            f"Yes, for this session: {later}.",
            "",
            "The cell, which a model wrote:",
            "",
            source,
        ]
    )


def _arguments(shown: Sequence[str]) -> Sequence[str]:
    """Return the lines of a call's arguments as one, if they are short and nothing else."""
    joined = ", ".join(line.removeprefix("  ") for line in shown)
    alone = all(map(_ARGUMENT.fullmatch, shown))
    return [f"  {joined}"] if shown and alone and len(joined) <= MAX_ARGUMENTS else shown


def _imports(shown: Sequence[str]) -> Sequence[str]:
    """Return the lines of one import as one: the name, and what the host says of it."""
    name, *said = shown
    whole = _ARGUMENT.fullmatch(name) and all(line.startswith("      ") for line in said)
    joined = f"{name}: {' '.join(map(str.strip, said))}" if said else name
    return [joined] if whole and len(joined) <= MAX_ARGUMENTS else shown


#: What is true of a no, of a form that was dismissed, and of one that nobody came back to.
_NOT_ALLOWED: Final = "the person at the client was asked, and did not allow it"


def _unasked(request: ApprovalRequest) -> No:
    """Return the answer where nobody can be asked: what the operator can do, and what a cell."""
    if request.kind == "import":
        tops = sorted({name.partition(".")[0] for name in request.names})
        line = f"add.allowed_modules = {json.dumps(tops)}"
    else:
        line = 'approvals = "never"'
    nobody = "nobody could be asked: this MCP client has no elicitation. The operator can allow it"
    why = encodable(f"{nobody}, unasked, with {visible(line)} in the policy")
    without = encodable(", ".join(map(visible, request.names)))
    remedy = f"Do without {without}. {why[0].upper()}{why[1:]}."
    return No(why=why, remedy=remedy, asked=False)
