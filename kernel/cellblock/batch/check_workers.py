"""The processes that read and judge files for ``cellblock check``, and the parent's end of them.

A worker has one file at a time, with little memory and time for it. A worker that ends before it
answered costs that file's verdict, and another takes its place. Nothing else can end the check.

Both speak frames over a socket, which is the worker's stdin and stdout.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from cellblock.analysis import forget
from cellblock.batch.judge import JudgeContext, judge
from cellblock.batch.verdict import (
    OUT_OF_MEMORY,
    CheckOptions,
    CheckTask,
    TaskDone,
    Verdict,
    WorkerReady,
    not_checked,
)
from cellblock.errors import CheckError, WireError
from cellblock.host.consent.admission.admission import of_notebook
from cellblock.host.files import upgraded
from cellblock.host.guests.spawn import import_path
from cellblock.wire import frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cellblock.batch.files import File

_BOOT: Final = (
    "import sys;sys.path[:] = sys.argv[1:];from cellblock.batch.check_workers import main;main()"
)
#: Environment that the interpreter reads before the first frame, or that says where the user's own
#: folders are, with approvals among them. Everything else is sent in frames.
_ENVIRONMENT: Final = ("HOME", "LANG", "LC_", "LD_", "PATH", "TZ", "XDG_DATA_HOME")
_READ_SIZE: Final = 1 << 16
#: Seconds that a worker has to import what it needs.
_START_TIMEOUT: Final = 60.0


class WorkItem(NamedTuple):
    """A file to judge, with its content and its absolute path."""

    file: File
    content: bytes
    path: bytes = b""


class CheckWorkers:
    """At most ``most`` processes that judge files. Close it."""

    def __init__(self, options: CheckOptions, most: int) -> None:
        self._options, self._most = options, most
        self._selector = selectors.DefaultSelector()
        self._workers = list[_Worker]()

    def judge(self, items: Iterable[WorkItem]) -> Iterator[tuple[WorkItem, Verdict]]:
        """Yield the verdict on each item, in any order. ``items`` is read as they are needed.

        Raise CheckError where no worker can be started.
        """
        waiting, coming = deque[WorkItem](), iter(items)
        while self._hand_out(waiting, coming):
            for worker in self._wait():
                item, verdict = worker.item, worker.receive()
                if worker.has_ended:
                    self._selector.unregister(worker.socket)
                    self._workers.remove(worker)
                    why = worker.end()
                    if not worker.is_ready:
                        raise CheckError(f"the process that checks did not start: {why}")
                    verdict = not_checked(why)
                if item is not None and verdict is not None:
                    yield item, verdict

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._selector.close()

    def _hand_out(self, waiting: deque[WorkItem], coming: Iterator[WorkItem]) -> bool:
        """Give each free worker an item. Return whether there is anything to wait for."""
        while True:
            free = next((w for w in self._workers if w.is_free), None)
            starting = sum(not w.is_ready for w in self._workers)
            room = len(self._workers) < self._most
            if (free or room) and len(waiting) <= starting:
                waiting.extend([item for item in [next(coming, None)] if item])
            if free and waiting:
                free.give(waiting.popleft())
            elif room and len(waiting) > starting:
                try:
                    worker = _Worker(self._options)
                except OSError as error:
                    raise CheckError(f"no process to check in: {error.strerror}") from None
                self._workers.append(worker)
                self._selector.register(worker.socket, selectors.EVENT_READ, worker)
            else:
                return bool(waiting) or any(w.item for w in self._workers)

    def _wait(self) -> list[_Worker]:
        """Block until a worker answers or hangs up; kill those whose time is over."""
        ends = [worker.deadline for worker in self._workers if worker.deadline]
        found = self._selector.select(max(0.0, min(ends) - time.monotonic()) if ends else None)
        for worker in self._workers:
            if worker.deadline and worker.deadline <= time.monotonic():
                worker.kill()
        return [key.data for key, _ in found]


class _Worker:
    """The parent's end of one process. ``item`` is what it is judging.

    Raise OSError where it can't be started.
    """

    def __init__(self, options: CheckOptions) -> None:
        argv = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, *import_path()]
        self._limits = options.limits
        self.socket, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            stack.callback(self.socket.close)
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and words of ours
                argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,  # libraries quote the files they read
                env={k: v for k, v in os.environ.items() if k.startswith(_ENVIRONMENT)},
            )
            stack.pop_all()
        self._splitter = frames.Splitter()
        self._decode = frames.Decoder[WorkerReady | TaskDone](WorkerReady | TaskDone)
        self.item: WorkItem | None = None
        self.is_ready = self.has_ended = self._overdue = False
        self.deadline = time.monotonic() + _START_TIMEOUT
        self._send(bytes(frames.encode(options)))

    @property
    def is_free(self) -> bool:
        """Whether it waits for an item, and will live to read it."""
        return self.is_ready and self.item is None and not self._overdue

    def give(self, item: WorkItem) -> None:
        """Send a file to the worker."""
        self.item = item
        self.deadline = time.monotonic() + self._limits.seconds
        task = CheckTask(item.file.kind, len(item.content), item.path)
        self._send(bytes(frames.encode(task)), item.content)

    def _send(self, *parts: bytes) -> None:
        with contextlib.suppress(OSError):  # one that is gone is noticed when it hangs up
            for part in parts:
                self.socket.sendall(part)

    def receive(self) -> Verdict | None:
        """Read what the worker sent. Return its verdict when that is complete."""
        try:
            data = self.socket.recv(_READ_SIZE)
        except OSError:  # it ended before it had read all that was sent
            data = b""
        self.has_ended = not data
        try:
            for payload in self._splitter.feed(data):
                message = self._decode(payload)
                self.is_ready, self.item, self.deadline = True, None, 0.0
                if isinstance(message, TaskDone):
                    return message.verdict
        except WireError:
            self._process.kill()
            self.has_ended = True
        return None

    def kill(self) -> None:
        """Kill a worker whose time is over; that it hangs up is noticed later."""
        self._overdue, self.deadline = True, 0.0
        self._process.kill()

    def end(self) -> str:
        """End the worker, and return why it ended."""
        self.socket.close()
        if not self.has_ended:
            self._process.kill()
        return self._limits.reason(self._process.wait(), overdue=self._overdue)


# --- in the worker process ------------------------------------------------------------------------


def main() -> None:
    """Judge files until the parent hangs up."""
    parent = socket.socket(fileno=0)
    tasks = parent.makefile("rb")
    options = frames.Decoder[CheckOptions](CheckOptions)(_read_frame(tasks))
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, options.limits.memory)
    context = judge_context(options)
    decode = frames.Decoder[CheckTask](CheckTask)
    parent.sendall(frames.encode(WorkerReady()))
    while True:
        task = decode(_read_frame(tasks))
        content = _read_exactly(tasks, task.size)
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = math.ceil(used.ru_utime + used.ru_stime) + options.limits.cpu_seconds
        _limit(resource.RLIMIT_CPU, seconds)
        parent.sendall(frames.encode(TaskDone(_judge(content, task, context))))
        forget()


def judge_context(options: CheckOptions) -> JudgeContext:
    """Return what files are judged by, with what the host looks up in files for it."""
    return JudgeContext(options, admitted=of_notebook, upgrade=upgraded)


def _judge(content: bytes, task: CheckTask, context: JudgeContext) -> Verdict:
    try:
        return judge(content, task.kind, context, Path(os.fsdecode(task.path)))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - an error of ours is one file's, not the check's
        why = f"could not be checked, by a mistake of cellblock's own: {type(error).__name__}"
        return not_checked(why)


def _limit(kind: int, most: int) -> None:
    """Set a soft limit, at most the hard one."""
    hard = resource.getrlimit(kind)[1]
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (allowed, hard))


def _read_frame(stream: BinaryIO) -> bytes:
    return _read_exactly(stream, int.from_bytes(_read_exactly(stream, frames.HEADER), "big"))


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    """Read so many bytes; exit where there are no more."""
    content = stream.read(size)
    if len(content) < size:
        sys.exit()
    return content
