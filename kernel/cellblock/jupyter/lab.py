"""The comms of an extension of JupyterLab: what the host tells it, and what it may ask.

Only a front end opens one, by ``comm_open`` with a secret. The host answers it itself: the guest
hears nothing of it. What the host says carries a code that takes the secret (HMAC-SHA256) and a
number that goes up, since what cells say reaches the page by the same channel. What is asked is
validated and bounded, and counts only from the connection that opened the comm.

``docs/lab-comm.md`` has every message. Imported when a front end opens the first such comm.
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
    call_words,
    cell_words,
    failure,
    finding_words,
    first_line,
    gap_words,
    question_words,
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

#: Comms that may be open: a page that is loaded anew leaves one behind.
MOST_COMMS: Final = 8
_LONGEST_ID: Final = 200
#: Seconds for which cells and calls are gathered, and what takes longer to be told; and if front
#: ends are far behind.
_GATHER: Final = 0.05
_GATHER_VIEWS: Final = 0.25
_BEHIND: Final = 1.0
#: Cells that a new comm is told of, records of the audit log.
_MOST_CELLS: Final = 50
_MOST_RECORDS: Final = 50
#: Calls that are told of at once, on all comms together: a server drops what comes faster than a
#: thousand messages a second, cells' output too.
MOST_CALLS: Final = 10
#: Characters of a cell that is checked while it is typed; and how many times as long as one check
#: took the next one waits, in seconds at most.
MOST_CHECKED: Final = 20_000
_REST: Final = 9
_LONGEST_REST: Final = 1.0
#: What is said anew when it changed, in this order.
_VIEWS: Final = ("state", "ports", "checkpoints", "changes", "audit")
#: What is said again when that is asked for.
_AGAIN: Final = (*_VIEWS, "cells", "question")
#: Seconds between two looks at who listens: a server may begin to after its cell has ended.
_PORTS: Final = 1.0


class LabKernel(Protocol):
    """What the extension shows of a kernel, and has it do."""

    channels: Channels
    outputs: Outputs
    views: Views
    audit: Audit
    session: Session | None
    execution_count: int
    #: The main shell's cell that runs.
    cell: CellRun | None
    #: The question of the host's that stands.
    question: HostQuestion | None

    def begin_outputs(self, outputs: Outputs, parent: Parent) -> None:
        """Show under ``parent`` what comes from now on."""

    def choose(self, choice: str) -> None:
        """Answer the host's question that stands."""


class Lab:
    """Speaks with the extensions of a kernel's front ends."""

    def __init__(self, kernel: LabKernel, reactor: ZmqReactor) -> None:
        self._kernel = kernel
        self._reactor = reactor
        self._comms: dict[str, LabComm] = {}
        #: What was said of the last cells, by number; those of which more is to be said.
        self._cells: dict[int, dict[str, Any]] = {}
        self._changed_cells: set[int] = set()
        #: Their numbers, by those that the audit log gives them.
        self._numbers: dict[int, int] = {}
        #: Calls that began or ended since any were told, by number.
        self._calls: dict[int, dict[str, Any]] = {}
        #: Calls that were told to run, and some that run and are yet to be told of.
        self._running: set[int] = set()
        self._untold: dict[int, CallRecord] = {}
        self._changes = StagedChanges(kernel.views, kernel.audit, reactor, self._on_changes)
        #: Requests that wait for a list of what is staged.
        self._refreshes: list[tuple[LabComm, str]] = []
        #: What may have changed since it was told, and whether it is told soon.
        self._due: set[str] = set()
        self._flushes = False
        self._next_views = 0.0
        #: When the next check may begin, and whether one waits for that.
        self._next_check = 0.0
        self._checks = False
        #: Whether it is looked again at who listens.
        self._looks_at_ports = False
        #: The table of what is enforced, and what it was made of: that takes milliseconds.
        self._enforced: tuple[tuple[object, ...], list[dict[str, str]]] | None = None
        if kernel.cell is not None:
            self.on_cell(kernel.cell)

    # --- messages of front ends ---------------------------------------------------------------

    def has(self, message: Message) -> bool:
        """Return whether a comm message is for one of these, or is to open one."""
        content = message.content
        if message.kind == "comm_open" and content.get("target_name") == LAB_TARGET:
            return True
        name = content.get("comm_id")
        return isinstance(name, str) and name in self._comms

    def takes_its_turn(self, message: Message) -> bool:
        """Return whether a message has to wait for what the main shell runs, as a cell does."""
        data = message.content.get("data")
        kind = data.get("kind") if isinstance(data, dict) else None
        return message.kind == "comm_msg" and isinstance(kind, str) and kind in CELL_KINDS

    def receive(self, message: Message, done: Callable[[], None] = lambda: None) -> None:
        """Answer a message; a fault of ours costs this one.

        ``done`` is called when one that waited for its turn is over.
        """
        try:
            if not self._receive(message, done):
                done()
        except Exception as exc:  # noqa: BLE001 - as said
            traceback.print_exception(exc)
            done()

    def _receive(self, message: Message, done: Callable[[], None]) -> bool:
        """Answer a message; return whether ``done`` is called later."""
        name = str(message.content.get("comm_id"))
        comm = self._comms.get(name)
        if comm is None:
            self._open(name, message)
        elif message.identities != comm.identities:
            pass  # only whoever opened it has a part in it
        elif message.kind == "comm_close":
            self._forget(name)
        elif message.kind == "comm_msg":
            self._comms[name] = self._comms.pop(name)  # it was heard of last
            data = message.content.get("data")
            named = data.get("id") if isinstance(data, dict) else None
            try:
                request = read_request(data)
            except msgspec.ValidationError as error:
                number = named[:100] if isinstance(named, str) else ""
                self._done(comm, number, f"this is no request: {error}")
                return False
            if isinstance(request, CellRequest):
                return self._run(comm, request, message, done)
            self._ask(comm, request)
        return False

    def _open(self, name: str, message: Message) -> None:
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

    def _close(self, name: str, why: str) -> None:
        content = {"comm_id": name[:_LONGEST_ID], "data": {"reason": why}}
        self._kernel.channels.publish("comm_close", content, None)

    def _ask(self, comm: LabComm, request: Any) -> None:
        """Answer a request at once."""
        match request:
            case Check():
                self._ask_check(comm, request)
            case Answer():
                # Not now: it may end a cell, which then takes what else has arrived.
                self._reactor.call_later(0, partial(self._answer, comm, request))
            case Refresh(what=what):
                self._refresh(comm, request, frozenset(what))
            case Diff(path=path):
                self._try(comm, request, lambda: self._tell_diff(comm, request.id, path))
            case Keep(paths=paths, digest=digest):
                self._changes.keep(paths, digest, partial(self._done, comm, request.id))
            case Drop(paths=paths):
                self._try(comm, request, lambda: self._dropped(comm, request.id, paths))

    def _try(self, comm: LabComm, request: Request, action: Callable[[], None]) -> None:
        """Do something, or say why it can't be done."""
        try:
            action()
        except (CellblockError, OSError) as error:
            self._done(comm, request.id, str(error))

    def _tell_diff(self, comm: LabComm, number: str, path: str) -> None:
        text = self._changes.diff(path)
        self._tell(comm, "diff", {"id": number, "path": path, "text": text})

    def _dropped(self, comm: LabComm, number: str, paths: list[str]) -> None:
        self._done(comm, number, message=self._changes.drop(paths))

    def _refresh(self, comm: LabComm, asked: Refresh, what: frozenset[str]) -> None:
        """Say again what is asked for, and then that this is all; of what is staged a new list."""
        if unknown := sorted(what.difference(_AGAIN)):
            self._done(comm, asked.id, f"there is no {unknown[0]}: there are {', '.join(_AGAIN)}")
            return
        if "cells" in what:
            self._tell_cells(comm)
        if "question" in what:
            self._tell_question(comm)
        for kind in what:
            comm.told.pop(kind, None)
        self._due |= what.intersection(_VIEWS) - {"changes"}
        self._tell_views()
        if "changes" in what:
            self._refreshes.append((comm, asked.id))
            self._changes.look(soon=True)
        else:
            self._done(comm, asked.id)

    def _on_changes(self) -> None:
        """Tell what is staged now; at once, where somebody waits for it."""
        self._say("changes")
        waiting = self._refreshes
        self._refreshes = []
        if waiting:
            self._tell_views()
        for comm, number in waiting:
            self._done(comm, number)

    def _done(self, comm: LabComm, number: str, problem: str = "", message: str = "") -> None:
        """Say how a request ended: with a ``problem``, or done."""
        said = {"id": number, "ok": not problem, "message": visible(problem or message)}
        self._tell(comm, "done", said)

    def _tell(self, comm: LabComm, kind: str, fields: dict[str, Any]) -> None:
        if self._comms.get(comm.name) is not comm:  # it was closed meanwhile
            return
        content = {"comm_id": comm.name, "data": comm.seal(kind, fields)}
        self._kernel.channels.publish("comm_msg", content, None)

    # --- what changes is told soon, the latest of each ----------------------------------------

    def _say(self, *kinds: str) -> None:
        self._due.update(kinds)
        if self._comms and not self._flushes:
            self._flushes = True
            self._reactor.call_later(_GATHER, self._flush_soon)

    def _say_all(self) -> None:
        self._say("state", "ports", "checkpoints", "audit")
        if self._comms:
            self._changes.look()
            self._look_at_ports()

    def _flush_soon(self) -> None:
        self._flushes = False
        wait = self._next_views - time.monotonic()
        if self._kernel.channels.iopub.over(HIGH):  # a front end that takes nothing gets no more
            wait = _BEHIND
        else:
            self._tell_events()
            if wait <= 0:
                self._tell_views()
        if self._due and self._comms and not self._flushes:
            self._flushes = True
            self._reactor.call_later(wait, self._flush_soon)

    def _tell_events(self) -> None:
        """Tell of cells and calls that began or ended since: of a cell's calls before its end."""
        changed = self._changed_cells
        self._changed_cells = set()
        cells = [self._cells[number] for number in sorted(changed) if number in self._cells]
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
        for record in untold.values():  # next time, as far as there is room
            self._on_call(record)

    def _tell_views(self) -> None:
        """Tell what may have changed, to all who do not know it yet."""
        if not self._comms:
            return
        due = self._due
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
            due.discard("ports")
        for kind in _VIEWS:
            if kind in due:
                self._tell_all(kind, views[kind]())

    def _tell_all(self, kind: str, fields: dict[str, Any]) -> None:
        """Tell it to all who do not know it yet."""
        for comm in self._comms.values():
            if comm.told.get(kind) != fields:
                comm.told[kind] = fields
                self._tell(comm, kind, fields)

    # --- what the kernel tells ----------------------------------------------------------------

    def on_guest(self) -> None:
        """Note that there is a new guest, or front end: all may be new."""
        if self._kernel.session is not None:
            self._kernel.session.requests.tools.watch = self._on_call
        self._say_all()

    def _tell_cells(self, comm: LabComm) -> None:
        for cell in self._cells.values():
            self._tell(comm, "cell", cell)

    def on_cell(self, cell: CellRun, *, ended: bool = False) -> None:
        """Note that a cell begins, or how it ended, if it is one with a number of its own."""
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
            self._say_all()
        else:
            self._say("state", "audit")

    def _on_call(self, record: CallRecord) -> None:
        """Note that a call of a tool or an operation begins, or how it ended."""
        self._calls.pop(record.number, None)
        self._untold.pop(record.number, None)
        # Of more at once only the ends of those are told that are known to run.
        told = len(self._calls) * max(1, len(self._comms))
        if told < MOST_CALLS or record.number in self._running:
            self._calls[record.number] = call_words(record, self._cell_of(record.cell))
        elif record.status == "unfinished" and len(self._untold) < MOST_CALLS:
            self._untold[record.number] = record
        self._say("state")

    def _cell_of(self, number: int) -> int:
        """Return the number of a cell that the audit log numbers so."""
        cell = self._kernel.cell
        if cell is not None and cell.number == number:
            return cell.count
        return self._numbers.get(number, self._kernel.execution_count)

    # --- questions of the host's --------------------------------------------------------------

    def on_question(self) -> None:
        """Tell of a question that stands, or no longer does."""
        for comm in self._comms.values():
            if comm.asked:
                self._tell(comm, "answered", {"id": comm.asked})
                comm.asked = ""
            self._tell_question(comm)

    def _tell_question(self, comm: LabComm) -> None:
        one = self._kernel.question
        if one is None:
            return
        comm.asked = one.id
        whose = {
            "id": one.id,
            "yours": comm.identities == one.cell.identities,
            "request": str(one.cell.header.get("msg_id", "")),
        }
        self._tell(comm, "question", whose | question_words(one.asked))

    def _answer(self, comm: LabComm, answer: Answer) -> None:
        """Answer the question that stands, or say why that is none of its answers."""
        one = self._kernel.question
        problem = ""
        if one is None or one.id != answer.id:
            problem = "this question is not asked any more"
        elif comm.identities != one.cell.identities:
            problem = "only the page that ran the cell can answer"
        elif answer.choice != "no" and answer.choice not in one.asked.offers:
            problem = "this is none of its answers"
        else:
            self._kernel.choose(answer.choice)
        self._done(comm, answer.id, problem)

    # --- going back ---------------------------------------------------------------------------

    def _run(
        self, comm: LabComm, asked: CellRequest, message: Message, done: Callable[[], None]
    ) -> bool:
        """Have the session run what a cell would say; return whether ``done`` is called later.

        The policy decides about it as about that cell, and it is on the audit log.
        """
        kernel = self._kernel
        if kernel.session is None:
            self._done(comm, asked.id, "nothing runs yet")
            return False
        count = kernel.execution_count
        outputs = kernel.outputs
        request = ExecuteRequest(code=asked.cell, execution_count=count, store_history=False)

        def ended(outcome: Outcome) -> None:
            outputs.end()
            self._done(comm, asked.id, failure(outcome))
            self._say_all()
            done()

        kernel.begin_outputs(outputs, message)
        kernel.session.execute(request, ended)
        return True

    def _checkpoints(self) -> dict[str, Any]:
        session = self._kernel.session
        if session is None:
            return {"steps": [], "named": []}
        snapshots = session.requests.supervisor.snapshots
        cells = [step.undone[0].message for step in snapshots.steps()]
        named = snapshots.chain.named().values()
        return {
            "steps": [
                {"number": cell.execution_count, "source": first_line(cell.raw)} for cell in cells
            ],
            "named": [{"name": one.name, "cell": one.cell or None} for one in named],
        }

    # --- servers of cells ---------------------------------------------------------------------

    def _has_ports(self) -> bool:
        policy = self._kernel.views.in_force
        return policy is not None and bool(policy.ports)

    def _ports(self) -> dict[str, Any]:
        return {"ports": [one._asdict() for one in self._kernel.views.ports()]}

    def _look_at_ports(self) -> None:
        """Tell from time to time who listens, as long as somebody hears it."""
        if self._looks_at_ports or not self._comms or not self._has_ports():
            return
        self._looks_at_ports = True

        def look() -> None:
            self._looks_at_ports = False
            self._say("ports")
            self._look_at_ports()

        self._reactor.call_later(_PORTS, look)

    # --- what is on the log -------------------------------------------------------------------

    def _audit(self) -> dict[str, Any]:
        return {"records": [*record_words(self._kernel.audit.tail(_MOST_RECORDS))]}

    def close(self) -> None:
        """End what is under way: the kernel ends."""
        self._changes.close()

    # --- what is in force ---------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        views = self._kernel.views
        policy = views.in_force
        told = None
        if policy is not None:
            digest = paths.without_scratch(policy, Path(views.scratch)).digest()
            told = {"name": visible(views.name), "mode": policy.mode, "digest": digest}
        why = unverified(views)
        return {
            "policy": told,
            "backend": views.backend,
            "verified": not why,
            "unverified_because": visible(why) or None,
            "enforced": self._in_force(),
            "gaps": [*map(gap_words, views.gaps)],
            "budgets": list(budget_rows(views)),
        }

    def _in_force(self) -> list[dict[str, str]]:
        views = self._kernel.views
        policy = views.in_force
        known = self._enforced
        if policy is None:
            return []
        of = policy, views.enforcement
        if known is None or known[0][0] is not of[0] or known[0][1] is not of[1]:
            fields = policy.as_dict() | {"backend": views.backend}
            rows = policy_card.enforced(fields, tuple(views.enforcement.values()))
            told = [{"what": visible(what), "how": visible(how)} for what, how in rows]
            known = self._enforced = of, told
        return known[1]

    # --- checking what is typed ---------------------------------------------------------------

    def _ask_check(self, comm: LabComm, asked: Check) -> None:
        """Have a cell checked soon; one of the same comm that waits is overtaken."""
        if len(asked.code) > MOST_CHECKED:
            problem = f"cells of up to {MOST_CHECKED:,} characters are checked while they are typed"
            self._done(comm, asked.id, problem)
            return
        if comm.check is not None:
            self._done(comm, comm.check.id, "overtaken")
        comm.check = asked
        if not self._checks:
            self._checks = True
            self._reactor.call_later(self._next_check - time.monotonic(), self._check)

    def _check(self) -> None:
        self._checks = False
        waiting = [comm for comm in self._comms.values() if comm.check is not None]
        for comm in waiting[:1]:
            asked = comm.check
            comm.check = None
            began = time.monotonic()
            if asked is not None:
                self._tell_findings(comm, asked)
            now = time.monotonic()
            self._next_check = now + min(_REST * (now - began), _LONGEST_REST)
        if waiting[1:]:
            self._checks = True
            self._reactor.call_later(self._next_check - time.monotonic(), self._check)

    def _tell_findings(self, comm: LabComm, asked: Check) -> None:
        session = self._kernel.session
        if session is None:
            self._done(comm, asked.id, "nothing runs yet")
            return
        try:
            found = session.check(asked.code)
        except CellblockError as error:
            self._done(comm, asked.id, str(error))
            return
        told = {"id": asked.id, "findings": finding_words(found, asked.code)}
        self._tell(comm, "findings", told)
