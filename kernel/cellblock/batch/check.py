"""``cellblock check``: files in, a report out. Nothing in the files runs.

They are judged in processes (`main`), each with one file at a time and little memory and time
for it.
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
    found: Sequence[files.File], policy: Policy, options: CheckOptions, *, jobs: int = 0
) -> CheckReport:
    """Check files in at most ``jobs`` processes. Raise CheckError where none can be had."""
    verdicts, problems = dict[files.File, Verdict](), list[Problem]()

    def readable() -> Iterator[WorkItem]:
        for file in found:
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
        for file in found
        if file in verdicts
    )
    return CheckReport(policy.name, options.template, checked, tuple(problems))


# --- the worker processes -------------------------------------------------------------------------
# A worker that ends before it answered costs the verdict of its file, and another takes its place.
# Nothing else can end the check.

_BOOT: Final = "import sys;sys.path[:] = sys.argv[1:];from cellblock.batch.check import main;main()"
#: Environment that the interpreter reads before the first frame, or that says where the user's own
#: folders are, with approvals among them. Everything else is sent in frames.
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
    """At most ``most`` processes that judge files; a thread waits for each. Close it."""

    def __init__(self, options: CheckOptions, most: int) -> None:
        self._options, self._most = options, most
        self._threads = ThreadPoolExecutor(most)
        #: All that run, and those of them that wait for a file.
        self._workers = list[_Worker]()
        self._free = list[_Worker]()
        self._closed = False

    def judge(self, items: Iterable[WorkItem]) -> Iterator[tuple[WorkItem, Verdict]]:
        """Yield the verdict on each item, in any order. ``items`` is read as they are needed.

        Raise CheckError where no worker can be started.
        """
        judging = set[Future[tuple[WorkItem, Verdict]]]()
        for item in items:
            judging.add(self._threads.submit(self._judge, item))
            if len(judging) == self._most:
                done, judging = wait(judging, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        yield from (one.result() for one in as_completed(judging))

    def close(self) -> None:
        """End all workers."""
        self._closed = True
        for worker in tuple(self._workers):
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.end()

    def _judge(self, item: WorkItem) -> tuple[WorkItem, Verdict]:
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
        if self._closed:  # it may have been too late to be killed
            worker.kill()
        if worker.receive() is None:
            self._workers.remove(worker)
            raise CheckError(f"the process that checks did not start: {worker.end()}")
        return worker


class _Worker:
    """The parent's end of one process. Raise OSError where it can't be started."""

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
        with contextlib.suppress(OSError):  # one that is gone, or slow, is noticed by `receive`
            for part in parts:
                self._socket.settimeout(self._seconds_left())
                self._socket.sendall(part)

    def receive(self) -> WorkerReady | Verdict | None:
        """Block until the worker answers; None where it ends before, or its time is over."""
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
        except (OSError, WireError):  # it ended before it had read all, or sent nonsense
            self.kill()
        return None

    def _seconds_left(self) -> float:
        """Return the seconds until the deadline; never 0, which a socket takes for no wait."""
        return max(0.001, self._deadline - time.monotonic())

    def kill(self) -> None:
        """Kill the process; that it hangs up is noticed by `receive`."""
        self._process.kill()

    def end(self) -> str:
        """Wait until the process, which hung up or was killed, has ended. Return why it did."""
        self._socket.close()
        return self._limits.reason(self._process.wait(), overdue=self._overdue)


# --- in such a process ----------------------------------------------------------------------------
# The parent sends the options, then tasks, over a socket that is stdin here, and gets a verdict for
# each.


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
        parent.sendall(frames.encode(judge_task(content, task, context)))
        forget()


def judge_context(options: CheckOptions) -> JudgeContext:
    """Return what files are judged by, with what the host looks up in files for it."""
    return JudgeContext(options, admitted=of_notebook, upgrade=upgraded)


def judge_task(content: bytes, task: CheckTask, context: JudgeContext) -> Verdict:
    """Return the verdict on a task's file; end the process where its memory is not enough."""
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
