"""``Lab``: the comms of JupyterLab's extension: what the host tells it, and what it may ask.

Only front ends open such a comm, by ``comm_open`` with a secret. The host answers it, and the guest
is told nothing. Cells' messages reach the page through the same channel. So each message of the
host's carries an authentication code made with the secret (HMAC-SHA256), and a number that goes up.
Requests are validated and bounded, and count only from the connection that opened the comm.

There are two kinds of messages to the extension. *Events*, about cells and calls, are all told in
their order (``_tell_events``), but calls only as far as there is room. *Views*, such as the state
and the list of ports, are told when they have changed, and only the newest (``_tell_views``). Both
are gathered for some time, since a server drops messages that come too fast.

``docs/lab-comm.md`` documents all messages. Imported when a front end opens the first such comm.
"""

from __future__ import annotations

import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from cellblock.errors import CellblockError
from cellblock.host.session.types import ExecuteRequest
from cellblock.jupyter.channels import HIGH
from cellblock.jupyter.lab_changes import StagedChanges
from cellblock.jupyter.lab_messages import (
    CELL_KINDS,
    Answer,
    CellRequest,
    Check,
    Diff,
    Drop,
    Keep,
    LabComm,
    Refresh,
    Request,
    budget_rows,
    call_json,
    cell_words,
    failure,
    finding_words,
    first_line,
    gap_json,
    question_json,
    read_request,
    read_secret,
    record_words,
    unverified,
)
from cellblock.policy import paths
from cellblock.policy.vocabulary import LAB_TARGET
from cellblock.render import policy_card
from cellblock.render.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.cell import CellRun
    from cellblock.host.cell.outputs import Outputs
    from cellblock.host.cell.publishing import Parent
    from cellblock.host.cell.status import Views
    from cellblock.host.services.tools.calls import CallRecord
    from cellblock.host.session.session import Session
    from cellblock.host.session.types import Outcome
    from cellblock.jupyter.channels import Channels
    from cellblock.jupyter.input_requests import HostQuestion
    from cellblock.jupyter.messages import Message
    from cellblock.jupyter.reactor import ZmqReactor

#: Comms that may be open at once. A page that is loaded anew leaves one behind.
MOST_COMMS: Final = 8
_LONGEST_ID: Final = 200
#: Seconds for which events are gathered.
_GATHER_SECONDS: Final = 0.05
#: Seconds between two updates of views, which take longer to make.
_GATHER_VIEWS: Final = 0.25
#: Seconds until the next attempt if front ends are far behind.
_BEHIND_SECONDS: Final = 1.0
#: Cells that a new comm is told of.
_MOST_CELLS: Final = 50
#: Records of the audit log that are told.
_MOST_RECORDS: Final = 50
#: Messages about calls in one batch of events, on all comms together, before further calls must
#: wait. A server drops messages beyond a thousand a second, and those could be cells' outputs.
MOST_CALLS: Final = 10
#: Characters of a cell that is checked while it is typed.
MOST_CHECKED: Final = 20_000
#: The next check waits so many times as long as the last one took.
_REST_FACTOR: Final = 9
#: Seconds that it waits at most.
_LONGEST_REST: Final = 1.0
#: The views, in the order in which they are told.
_VIEWS: Final = ("state", "ports", "checkpoints", "changes", "audit")
#: What a front end may ask to be told again.
_REFRESHABLE: Final = (*_VIEWS, "cells", "question")
#: Seconds between two looks at the ports. A server may begin to listen after its cell has ended.
_PORTS_SECONDS: Final = 1.0


class LabKernel(Protocol):
    """The parts of ``Kernel`` that the extension shows and acts on."""

    channels: Channels
    outputs: Outputs
    views: Views
    audit: Audit
    session: Session | None
    execution_count: int
    #: The running cell of the main shell.
    cell: CellRun | None
    #: The host's question that waits for an answer.
    question: HostQuestion | None

    def begin_outputs(self, outputs: Outputs, parent: Parent) -> None:
        """Show outputs under ``parent`` from now on."""

    def choose(self, choice: str) -> None:
        """Answer the host's open question."""


class Lab:
    """The extension's comms with one kernel."""

    def __init__(self, kernel: LabKernel, reactor: ZmqReactor) -> None:
        self._kernel = kernel
        self._reactor = reactor
        #: The open comms by id; the one that was heard of last is last.
        self._comms: dict[str, LabComm] = {}
        #: The last cells by execution count, as they are told.
        self._cells: dict[int, dict[str, Any]] = {}
        #: Execution counts of cells that began or ended since events were told.
        self._changed_cells: set[int] = set()
        #: Execution counts of cells by their audit numbers.
        self._numbers: dict[int, int] = {}
        #: Calls, by number, that began or ended since events were told.
        self._calls: dict[int, dict[str, Any]] = {}
        #: Numbers of the calls that the extension knows to be running. Their ends must be told.
        self._running: set[int] = set()
        #: Running calls that did not fit into the last batch of events for the extension. They go
        #: into the next that has room.
        self._untold: dict[int, CallRecord] = {}
        self._changes = StagedChanges(kernel.views, kernel.audit, reactor, self._on_changes)
        #: Requests, by comm and id, that wait for a new list of staged changes.
        self._refreshes: list[tuple[LabComm, str]] = []
        #: The views that may have changed since they were told.
        self._due: set[str] = set()
        #: Whether a timer is set for the next flush of events and views.
        self._flushes = False
        #: When views may be told next.
        self._next_views = 0.0
        #: When the next check may begin.
        self._next_check = 0.0
        #: Whether a timer is set for it.
        self._checks = False
        #: Whether a timer is set for the next look at the ports.
        self._looks_at_ports = False
        #: The list of what is enforced, and what it was made from. Making it takes milliseconds.
        self._enforced: tuple[tuple[object, ...], list[dict[str, str]]] | None = None
        if kernel.cell is not None:
            self.on_cell(kernel.cell)

    # --- messages from front ends -------------------------------------------------------------

    def has(self, message: Message) -> bool:
        """Return whether a comm message is on one of these comms, or opens one."""
        content = message.content
        if message.kind == "comm_open" and content.get("target_name") == LAB_TARGET:
            return True
        name = content.get("comm_id")
        return isinstance(name, str) and name in self._comms

    def takes_its_turn(self, message: Message) -> bool:
        """Return whether a message must wait for its turn in the main shell, as a cell does."""
        data = message.content.get("data")
        kind = data.get("kind") if isinstance(data, dict) else None
        return message.kind == "comm_msg" and isinstance(kind, str) and kind in CELL_KINDS

    def receive(self, message: Message, done: Callable[[], None] = lambda: None) -> None:
        """Answer a message. A fault in this module costs the message, not the kernel.

        ``done`` is called when the message has been dealt with, for messages that took their turn.
        """
        try:
            if not self._receive(message, done):
                done()
        except Exception as exc:  # noqa: BLE001 - see the docstring
            traceback.print_exception(exc)
            done()

    def _receive(self, message: Message, done: Callable[[], None]) -> bool:
        """Answer a message; return whether ``done`` will be called later."""
        name = str(message.content.get("comm_id"))
        comm = self._comms.get(name)
        if comm is None:
            self._open(name, message)
        elif message.identities != comm.identities:
            pass  # another front end's message on a comm that it did not open
        elif message.kind == "comm_close":
            self._forget(name)
        elif message.kind == "comm_msg":
            self._comms[name] = self._comms.pop(name)  # move it to the end: it was heard of last
            data = message.content.get("data")
            request_id = data.get("id") if isinstance(data, dict) else None
            try:
                request = read_request(data)
            except msgspec.ValidationError as error:
                number = request_id[:100] if isinstance(request_id, str) else ""
                self._tell_done(comm, number, f"this is not a request: {error}")
                return False
            if isinstance(request, CellRequest):
                return self._run(comm, request, message, done)
            self._ask(comm, request)
        return False

    def _open(self, name: str, message: Message) -> None:
        """Open a comm and tell the extension everything, or close it with a reason.

        If there are too many, the one that was silent for longest is closed.
        """
        secret = read_secret(message.content.get("data"))
        guests = self._kernel.outputs.open_comms
        if isinstance(secret, str):
            self._close(name, secret)
            return
        if not 0 < len(name) <= _LONGEST_ID or (guests is not None and guests.knows(name)):
            self._close(name, "its id is in use, or too long")
            return
        if len(self._comms) >= MOST_COMMS:
            silent = next(iter(self._comms))
            self._forget(silent)
            self._close(silent, f"there are {MOST_COMMS}, and another one was opened")
        self._comms[name] = comm = LabComm(name, secret, message.identities)
        self._kernel.outputs.host_comms.add(name)
        self._tell_cells(comm)
        self._tell_question(comm)
        self.on_guest()

    def _forget(self, name: str) -> None:
        del self._comms[name]
        self._kernel.outputs.host_comms.discard(name)

    def _close(self, name: str, reason: str) -> None:
        content = {"comm_id": name[:_LONGEST_ID], "data": {"reason": reason}}
        self._kernel.channels.publish("comm_close", content, None)

    def _ask(self, comm: LabComm, request: Any) -> None:
        """Answer a request that need not wait for its turn."""
        match request:
            case Check():
                self._ask_check(comm, request)
            case Answer():
                # Not now: the answer may end the running cell, which receives messages itself.
                self._reactor.call_later(0, partial(self._answer, comm, request))
            case Refresh(what=what):
                self._refresh(comm, request, frozenset(what))
            case Diff(path=path):
                self._try(comm, request, lambda: self._tell_diff(comm, request.id, path))
            case Keep(paths=paths, digest=digest):
                self._changes.keep(paths, digest, partial(self._tell_done, comm, request.id))
            case Drop(paths=paths):
                self._try(comm, request, lambda: self._drop(comm, request.id, paths))

    def _try(self, comm: LabComm, request: Request, action: Callable[[], None]) -> None:
        """Call ``action``; if it fails, say why."""
        try:
            action()
        except (CellblockError, OSError) as error:
            self._tell_done(comm, request.id, str(error))

    def _tell_diff(self, comm: LabComm, number: str, path: str) -> None:
        text = self._changes.diff(path)
        self._tell(comm, "diff", {"id": number, "path": path, "text": text})

    def _drop(self, comm: LabComm, number: str, paths: list[str]) -> None:
        self._tell_done(comm, number, message=self._changes.drop(paths))

    def _refresh(self, comm: LabComm, request: Refresh, views: frozenset[str]) -> None:
        """Tell again what is asked for, then that the request is done.

        For "changes" a new list is made first.
        """
        if unknown := sorted(views.difference(_REFRESHABLE)):
            self._tell_done(
                comm, request.id, f"there is no {unknown[0]}: there are {', '.join(_REFRESHABLE)}"
            )
            return
        if "cells" in views:
            self._tell_cells(comm)
        if "question" in views:
            self._tell_question(comm)
        for kind in views:
            comm.told.pop(kind, None)
        self._due |= views.intersection(_VIEWS) - {"changes"}
        self._tell_views()
        if "changes" in views:
            self._refreshes.append((comm, request.id))
            self._changes.look(soon=True)
        else:
            self._tell_done(comm, request.id)

    def _on_changes(self) -> None:
        """Tell the new list of staged changes, at once if a request waits for it."""
        self._mark_due("changes")
        waiting = self._refreshes
        self._refreshes = []
        if waiting:
            self._tell_views()
        for comm, number in waiting:
            self._tell_done(comm, number)

    def _tell_done(self, comm: LabComm, number: str, problem: str = "", message: str = "") -> None:
        """Tell that a request is done, or why it failed (``problem``)."""
        fields = {"id": number, "ok": not problem, "message": visible(problem or message)}
        self._tell(comm, "done", fields)

    def _tell(self, comm: LabComm, kind: str, fields: dict[str, Any]) -> None:
        """Send a message on a comm, unless it was closed meanwhile."""
        if self._comms.get(comm.name) is not comm:
            return
        content = {"comm_id": comm.name, "data": comm.seal(kind, fields)}
        self._kernel.channels.publish("comm_msg", content, None)

    # --- events and views are told soon -------------------------------------------------------

    def _mark_due(self, *kinds: str) -> None:
        """Note that these views may have changed, and tell them and new events soon."""
        self._due.update(kinds)
        if self._comms and not self._flushes:
            self._flushes = True
            self._reactor.call_later(_GATHER_SECONDS, self._flush_soon)

    def _mark_all_due(self) -> None:
        self._mark_due("state", "ports", "checkpoints", "audit")
        if self._comms:
            self._changes.look()
            self._look_at_ports()

    def _flush_soon(self) -> None:
        """Tell events, and the views that are due if it is time for these; else try again later."""
        self._flushes = False
        wait = self._next_views - time.monotonic()
        if self._kernel.channels.iopub.over(HIGH):
            wait = _BEHIND_SECONDS  # front ends that do not read get no more
        else:
            self._tell_events()
            if wait <= 0:
                self._tell_views()
        if self._due and self._comms and not self._flushes:
            self._flushes = True
            self._reactor.call_later(wait, self._flush_soon)

    def _tell_events(self) -> None:
        """Tell the cells and calls that began or ended since the last time.

        First the cells that began, then calls, then the cells that ended.
        """
        changed_counts = self._changed_cells
        self._changed_cells = set()
        cells = [self._cells[number] for number in sorted(changed_counts) if number in self._cells]
        calls = self._calls
        self._calls = {}
        self._running.difference_update(calls)
        self._running |= {number for number, call in calls.items() if call["state"] == "running"}
        events = [("cell", cell) for cell in cells if cell["state"] == "running"]
        events += [("call", call) for call in calls.values()]
        events += [("cell", cell) for cell in cells if cell["state"] != "running"]
        for comm in self._comms.values():
            for kind, fields in events:
                self._tell(comm, kind, fields)
        untold = self._untold
        self._untold = {}
        for record in untold.values():
            self._on_call(record)  # they are told next time, as far as there is room then

    def _tell_views(self) -> None:
        """Tell the views that are due, on each comm that was not told the same before."""
        if not self._comms:
            return
        views_due = self._due
        self._due = set()
        self._next_views = time.monotonic() + _GATHER_VIEWS
        views = {
            "state": self._state,
            "ports": self._ports,
            "checkpoints": self._checkpoints,
            "changes": self._changes.words,
            "audit": self._audit,
        }
        if not self._has_ports():
            views_due.discard("ports")
        for kind in _VIEWS:
            if kind in views_due:
                self._tell_all(kind, views[kind]())

    def _tell_all(self, kind: str, fields: dict[str, Any]) -> None:
        """Tell a view on each comm that was not told the same before."""
        for comm in self._comms.values():
            if comm.told.get(kind) != fields:
                comm.told[kind] = fields
                self._tell(comm, kind, fields)

    # --- called by the kernel -----------------------------------------------------------------

    def on_guest(self) -> None:
        """Note that there is a new guest or comm, so that all views may have changed."""
        if self._kernel.session is not None:
            self._kernel.session.requests.tools.watch = self._on_call
        self._mark_all_due()

    def _tell_cells(self, comm: LabComm) -> None:
        for cell in self._cells.values():
            self._tell(comm, "cell", cell)

    def on_cell(self, cell: CellRun, *, ended: bool = False) -> None:
        """Note that a cell begins, or has ``ended``, if it has an execution count of its own."""
        request = cell.request
        if request.silent or not request.store_history or not request.code.strip():
            return
        if ended and cell.number:
            self._numbers = dict([*self._numbers.items(), (cell.number, cell.count)][-_MOST_CELLS:])
        self._cells.pop(cell.count, None)
        self._cells[cell.count] = cell_words(cell, ended=ended)
        self._changed_cells.add(cell.count)
        if len(self._cells) > _MOST_CELLS:
            del self._cells[next(iter(self._cells))]
        if ended:
            self._mark_all_due()
        else:
            self._mark_due("state", "audit")

    def _on_call(self, record: CallRecord) -> None:
        """Note that a call of a tool or operation begins, or has ended.

        If there are many at once, only the ends of calls that were told to run are told. Others
        that still run wait for the next time.
        """
        self._calls.pop(record.number, None)
        self._untold.pop(record.number, None)
        messages = len(self._calls) * max(1, len(self._comms))
        if messages < MOST_CALLS or record.number in self._running:
            self._calls[record.number] = call_json(record, self._cell_of(record.cell))
        elif record.status == "unfinished" and len(self._untold) < MOST_CALLS:
            self._untold[record.number] = record
        self._mark_due("state")

    def _cell_of(self, number: int) -> int:
        """Return the execution count of the cell with this audit number."""
        cell = self._kernel.cell
        if cell is not None and cell.number == number:
            return cell.count
        return self._numbers.get(number, self._kernel.execution_count)

    # --- questions of the host's --------------------------------------------------------------

    def on_question(self) -> None:
        """Tell that the host asks a question, or that a question was answered."""
        for comm in self._comms.values():
            if comm.asked:
                self._tell(comm, "answered", {"id": comm.asked})
                comm.asked = ""
            self._tell_question(comm)

    def _tell_question(self, comm: LabComm) -> None:
        """Tell the open question, if there is one."""
        question = self._kernel.question
        if question is None:
            return
        comm.asked = question.id
        about_cell = {
            "id": question.id,
            "yours": comm.identities == question.cell.identities,
            "request": str(question.cell.header.get("msg_id", "")),
        }
        self._tell(comm, "question", about_cell | question_json(question.asked))

    def _answer(self, comm: LabComm, answer: Answer) -> None:
        """Answer the open question, or say why this answer is not accepted."""
        question = self._kernel.question
        problem = ""
        if question is None or question.id != answer.id:
            problem = "this question is no longer open"
        elif comm.identities != question.cell.identities:
            problem = "only the page that ran the cell can answer"
        elif answer.choice != "no" and answer.choice not in question.asked.offers:
            problem = "this is not one of its answers"
        else:
            self._kernel.choose(answer.choice)
        self._tell_done(comm, answer.id, problem)

    # --- going back ---------------------------------------------------------------------------

    def _run(
        self, comm: LabComm, cell_request: CellRequest, message: Message, done: Callable[[], None]
    ) -> bool:
        """Run the cell that says what a request asks for; return whether ``done`` is called later.

        The policy decides about that cell as about any other, and the cell is in the audit log.
        """
        kernel = self._kernel
        if kernel.session is None:
            self._tell_done(comm, cell_request.id, "nothing runs yet")
            return False
        count = kernel.execution_count
        outputs = kernel.outputs
        request = ExecuteRequest(code=cell_request.cell, execution_count=count, store_history=False)

        def ended(outcome: Outcome) -> None:
            outputs.end()
            self._tell_done(comm, cell_request.id, failure(outcome))
            self._mark_all_due()
            done()

        kernel.begin_outputs(outputs, message)
        kernel.session.execute(request, ended)
        return True

    def _checkpoints(self) -> dict[str, Any]:
        """Return the view "checkpoints": the steps that %undo can take, and the named states."""
        session = self._kernel.session
        if session is None:
            return {"steps": [], "named": []}
        snapshots = session.requests.supervisor.snapshots
        cells = [step.undone[0].message for step in snapshots.steps()]
        named_states = snapshots.chain.named().values()
        return {
            "steps": [
                {"number": cell.execution_count, "source": first_line(cell.raw)} for cell in cells
            ],
            "named": [{"name": state.name, "cell": state.cell or None} for state in named_states],
        }

    # --- servers of cells ---------------------------------------------------------------------

    def _has_ports(self) -> bool:
        policy = self._kernel.views.in_force
        return policy is not None and bool(policy.ports)

    def _ports(self) -> dict[str, Any]:
        return {"ports": [port._asdict() for port in self._kernel.views.ports()]}

    def _look_at_ports(self) -> None:
        """Tell the ports every second, as long as a comm is open."""
        if self._looks_at_ports or not self._comms or not self._has_ports():
            return
        self._looks_at_ports = True

        def look() -> None:
            self._looks_at_ports = False
            self._mark_due("ports")
            self._look_at_ports()

        self._reactor.call_later(_PORTS_SECONDS, look)

    # --- the audit log ------------------------------------------------------------------------

    def _audit(self) -> dict[str, Any]:
        return {"records": [*record_words(self._kernel.audit.tail(_MOST_RECORDS))]}

    def close(self) -> None:
        """End reading and keeping of staged changes: the kernel ends."""
        self._changes.close()

    # --- what is in force ---------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        """Return the view "state": the policy, what is enforced, gaps and budgets."""
        views = self._kernel.views
        policy = views.in_force
        identity = None
        if policy is not None:
            digest = paths.without_scratch(policy, Path(views.scratch)).digest()
            identity = {"name": visible(views.name), "mode": policy.mode, "digest": digest}
        reason = unverified(views)
        return {
            "policy": identity,
            "backend": views.backend,
            "verified": not reason,
            "unverified_because": visible(reason) or None,
            "enforced": self._fields_in_force(),
            "gaps": [*map(gap_json, views.gaps)],
            "budgets": list(budget_rows(views)),
        }

    def _fields_in_force(self) -> list[dict[str, str]]:
        """Return the fields of the policy that hold, and how, made anew only if these changed."""
        views = self._kernel.views
        policy = views.in_force
        enforced = self._enforced
        if policy is None:
            return []
        sources = policy, views.enforcement
        if enforced is None or enforced[0][0] is not sources[0] or enforced[0][1] is not sources[1]:
            fields = policy.as_dict() | {"backend": views.backend}
            rows = policy_card.enforced(fields, tuple(views.enforcement.values()))
            rows_json = [
                {"what": visible(field), "how": visible(mechanism)} for field, mechanism in rows
            ]
            enforced = self._enforced = sources, rows_json
        return enforced[1]

    # --- checking what is typed ---------------------------------------------------------------

    def _ask_check(self, comm: LabComm, check: Check) -> None:
        """Check a cell soon. It replaces a check of the same comm that still waits."""
        if len(check.code) > MOST_CHECKED:
            problem = f"cells of up to {MOST_CHECKED:,} characters are checked while they are typed"
            self._tell_done(comm, check.id, problem)
            return
        if comm.check is not None:
            self._tell_done(comm, comm.check.id, "overtaken")
        comm.check = check
        if not self._checks:
            self._checks = True
            self._reactor.call_later(self._next_check - time.monotonic(), self._check)

    def _check(self) -> None:
        """Make the check of one comm; then rest, so that checks take a tenth of the time."""
        self._checks = False
        waiting = [comm for comm in self._comms.values() if comm.check is not None]
        for comm in waiting[:1]:
            check = comm.check
            comm.check = None
            began = time.monotonic()
            if check is not None:
                self._tell_findings(comm, check)
            finish = time.monotonic()
            self._next_check = finish + min(_REST_FACTOR * (finish - began), _LONGEST_REST)
        if waiting[1:]:
            self._checks = True
            self._reactor.call_later(self._next_check - time.monotonic(), self._check)

    def _tell_findings(self, comm: LabComm, check: Check) -> None:
        """Tell the findings of a check, or why there are none to tell."""
        session = self._kernel.session
        if session is None:
            self._tell_done(comm, check.id, "nothing runs yet")
            return
        try:
            findings = session.check(check.code)
        except CellblockError as error:
            self._tell_done(comm, check.id, str(error))
            return
        fields = {"id": check.id, "findings": finding_words(findings, check.code)}
        self._tell(comm, "findings", fields)
