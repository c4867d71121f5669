"""``cellblock check``: from files to a report. Nothing in the files runs.

Worker processes (`main`) judge the files, because parsing a hostile file may take any amount of
memory and time. Each has one file at a time, and limits for it. The parent starts workers, sends
them files and collects their verdicts (`CheckWorkers`); a thread waits for each worker:

    _start ─> WorkerReady ─> free ─ give ─> judging ─ Verdict ─> free
                                                    └ ended, or over its time ─> end: not checked
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import socket
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cellblock.analysis import forget
from cellblock.batch import files
from cellblock.batch.judge import JudgeContext, judge
from cellblock.batch.verdict import (
    MAX_FILE_BYTES,
    OUT_OF_MEMORY,
    CheckedFile,
    CheckOptions,
    CheckReport,
    CheckTask,
    Problem,
    Verdict,
    WorkerReady,
    not_checked,
)
from cellblock.errors import CheckError, WireError
from cellblock.host.consent.admission import of_notebook
from cellblock.host.files import upgraded
from cellblock.host.guests.spawn import available_processors, import_path
from cellblock.wire import frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import BinaryIO

    from cellblock.policy.model import Policy


def check(
    files_found: Sequence[files.File], policy: Policy, options: CheckOptions, *, jobs: int = 0
) -> CheckReport:
    """Check files in at most ``jobs`` processes, by default one for each processor.

    Raise CheckError if no process can be started.
    """
    verdicts = dict[files.File, Verdict]()
    problems = list[Problem]()

    def readable() -> Iterator[WorkItem]:
        for file in files_found:
            try:
                content = files.read(file)
            except files.NoFileError as error:
                verdicts[file] = not_checked(str(error), "file-not-readable")
                continue
            except OSError as error:
                problems.append(Problem(file.shown, f"can't be read: {error.strerror}"))
                continue
            if len(content) > MAX_FILE_BYTES:
                verdicts[file] = not_checked(f"is larger than {MAX_FILE_BYTES >> 20} MiB")
            else:
                yield WorkItem(file, content, os.fsencode(files.absolute(file.path)))

    workers = CheckWorkers(options, jobs or available_processors())
    try:
        for item, verdict in workers.judge(readable()):
            if verdict.problem:
                problems.append(Problem(item.file.shown, verdict.problem))
            else:
                verdicts[item.file] = verdict
    finally:
        workers.close()
    checked = tuple(
        CheckedFile(file.shown, file.kind, verdicts[file], policy.name, options.policy_file)
        for file in files_found
        if file in verdicts
    )
    return CheckReport(policy.name, options.template, checked, tuple(problems))


# --- the worker processes, seen from the parent ---------------------------------------------------
# If a worker ends before it has answered, its file counts as not checked, and another worker takes
# its place. Only workers that can't be started end the check.

_BOOT: Final = "import sys;sys.path[:] = sys.argv[1:];from cellblock.batch.check import main;main()"
#: Prefixes of the environment variables that a worker gets: the interpreter reads them before the
#: first frame, or they say where the user's folders are, approvals among them. Everything else is
#: sent in frames.
_ENVIRONMENT: Final = ("HOME", "LANG", "LC_", "LD_", "PATH", "TZ", "XDG_DATA_HOME")
_READ_SIZE: Final = 1 << 16
#: Seconds that a worker has to import what it needs.
_START_TIMEOUT: Final = 60.0


class WorkItem(NamedTuple):
    """A file to judge, with its content and its absolute path."""

    file: files.File
    content: bytes
    path: bytes = b""


class CheckWorkers:
    """The worker processes of a check, at most ``most``, and a thread for each. Close it."""

    def __init__(self, options: CheckOptions, most: int) -> None:
        self._options = options
        self._most = most
        self._threads = ThreadPoolExecutor(most)
        #: All workers that run.
        self._workers = list[_Worker]()
        #: The workers that have no file.
        self._free = list[_Worker]()
        self._closed = False

    def judge(self, items: Iterable[WorkItem]) -> Iterator[tuple[WorkItem, Verdict]]:
        """Yield each item with its verdict, in any order.

        ``items`` is read only as fast as files are judged, so that few contents are in memory.
        Raise CheckError if no worker can be started.
        """
        judging = set[Future[tuple[WorkItem, Verdict]]]()
        for item in items:
            judging.add(self._threads.submit(self._judge, item))
            if len(judging) == self._most:
                done, judging = wait(judging, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in as_completed(judging))

    def close(self) -> None:
        """Kill all workers, and wait until they have ended."""
        self._closed = True
        for worker in tuple(self._workers):
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.end()

    def _judge(self, item: WorkItem) -> tuple[WorkItem, Verdict]:
        """Return the verdict of a free or new worker. Called in a thread of its own."""
        try:
            worker = self._free.pop()
        except IndexError:
            worker = self._start()
        worker.give(item)
        verdict = worker.receive()
        if isinstance(verdict, Verdict):
            self._free.append(worker)
            return item, verdict
        self._workers.remove(worker)
        return item, not_checked(worker.end())

    def _start(self) -> _Worker:
        try:
            worker = _Worker(self._options)
        except OSError as error:
            raise CheckError(f"no process to check in: {error.strerror}") from None
        self._workers.append(worker)
        if self._closed:  # `close` may have killed the others before this one was in the list
            worker.kill()
        if worker.receive() is None:
            self._workers.remove(worker)
            raise CheckError(f"the process that checks did not start: {worker.end()}")
        return worker


class _Worker:
    """The parent's end of a worker process. Raise OSError if the process can't be started."""

    def __init__(self, options: CheckOptions) -> None:
        argv = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, *import_path()]
        self._limits = options.limits
        self._socket, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            stack.callback(self._socket.close)
            self._process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,  # libraries quote the files they read
                env={k: v for k, v in os.environ.items() if k.startswith(_ENVIRONMENT)},
            )
            stack.pop_all()
        self._splitter = frames.Splitter()
        self._decode = frames.Decoder[WorkerReady | Verdict](WorkerReady | Verdict)
        self._overdue = False
        self._deadline = time.monotonic() + _START_TIMEOUT
        self._send(bytes(frames.encode(options)))

    def give(self, item: WorkItem) -> None:
        """Send a file to the worker."""
        self._deadline = time.monotonic() + self._limits.seconds
        task = CheckTask(item.file.kind, len(item.content), item.path)
        self._send(bytes(frames.encode(task)), item.content)

    def _send(self, *parts: bytes) -> None:
        with contextlib.suppress(OSError):  # `receive` notices a worker that is gone or too slow
            for part in parts:
                self._socket.settimeout(self._seconds_left())
                self._socket.sendall(part)

    def receive(self) -> WorkerReady | Verdict | None:
        """Block until the worker answers. Return None if it ends before, or its time is over."""
        try:
            while True:
                self._socket.settimeout(self._seconds_left())
                data = self._socket.recv(_READ_SIZE)
                for payload in self._splitter.feed(data):
                    return self._decode(payload)
                if not data:
                    return None
        except TimeoutError:
            self._overdue = True
            self.kill()
        except (OSError, WireError):  # it ended before it had read everything, or sent no frame
            self.kill()
        return None

    def _seconds_left(self) -> float:
        """Return the seconds until the deadline; never 0, which would mean not to wait at all."""
        return max(0.001, self._deadline - time.monotonic())

    def kill(self) -> None:
        """Kill the process. `receive` then notices that it has hung up."""
        self._process.kill()

    def end(self) -> str:
        """Wait until the process, which hung up or was killed, has ended. Return why it ended."""
        self._socket.close()
        return self._limits.reason(self._process.wait(), overdue=self._overdue)


# --- in a worker process --------------------------------------------------------------------------
# The parent sends the options, then tasks, over a socket that is stdin here. The worker sends a
# verdict for each task.


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
        usage = resource.getrusage(resource.RUSAGE_SELF)
        seconds = math.ceil(usage.ru_utime + usage.ru_stime) + options.limits.cpu_seconds
        _limit(resource.RLIMIT_CPU, seconds)
        parent.sendall(frames.encode(judge_task(content, task, context)))
        forget()


def judge_context(options: CheckOptions) -> JudgeContext:
    """Return the context of a judge, with the host's functions that look things up in files."""
    return JudgeContext(options, admitted=of_notebook, upgrade=upgraded)


def judge_task(content: bytes, task: CheckTask, context: JudgeContext) -> Verdict:
    """Return the verdict on a task's file. If there is too little memory, end the process."""
    try:
        return judge(content, task.kind, context, Path(os.fsdecode(task.path)))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - a defect of cellblock costs one file, not the check
        why = f"could not be checked, by a mistake of cellblock's own: {type(error).__name__}"
        return not_checked(why)


def _limit(kind: int, new_limit: int) -> None:
    """Set a soft limit to ``new_limit``, or to the hard limit if that is lower."""
    hard = resource.getrlimit(kind)[1]
    soft = new_limit if hard == resource.RLIM_INFINITY else min(new_limit, hard)
    resource.setrlimit(kind, (soft, hard))


def _read_frame(stream: BinaryIO) -> bytes:
    return _read_exactly(stream, int.from_bytes(_read_exactly(stream, frames.HEADER), "big"))


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    """Read ``size`` bytes. Exit if the parent has hung up."""
    content = stream.read(size)
    if len(content) < size:
        sys.exit()
    return content
