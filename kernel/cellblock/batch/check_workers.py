"""The parent's end of the workers: files out, verdicts in, and what becomes of a file that kills.

A worker has one file at a time. One that ends before it has answered costs that file's verdict,
and another takes its place. Nothing else can end the run.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import resource
import selectors
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Generic, NamedTuple, TypeVar

from cellblock.analysis import Rules, forget
from cellblock.batch.judge import By, judge
from cellblock.batch.verdict import (
    OUT_OF_MEMORY,
    Found,
    Judged,
    Kind,
    Ready,
    Task,
    Terms,
    Verdict,
    own_finding,
)
from cellblock.errors import CheckError, WireError
from cellblock.host.guests.spawn import import_path
from cellblock.wire import frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import msgspec

    from cellblock.analysis.admission import Admitted
    from cellblock.policy.model import Policy


_BOOT: Final = (
    "import sys;sys.path[:] = sys.argv[1:];from cellblock.batch.check_workers import main;main()"
)
#: Set before the interpreter reads the first byte, and where the user's own folders are, approvals
#: among them; everything else is told in frames.
_EARLY: Final = ("HOME", "LANG", "LC_", "LD_", "PATH", "TZ", "XDG_DATA_HOME")
_READ_SIZE: Final = 1 << 16
#: Seconds that a worker has to import what it needs.
_START: Final = 60.0
T = TypeVar("T")


class Given(NamedTuple, Generic[T]):
    """A file for the workers, what the caller knows it by, and where it lies."""

    known_by: T
    kind: Kind
    content: bytes
    place: bytes = b""


class Workers(Generic[T]):
    """At most ``most`` processes that judge by ``terms``. Close it."""

    def __init__(self, terms: Terms, most: int) -> None:
        self._terms, self._most = terms, most
        self._selector = selectors.DefaultSelector()
        self._workers = list[_Worker[T]]()

    def judge(self, files: Iterable[Given[T]]) -> Iterator[tuple[T, Verdict]]:
        """Yield the verdict on each file, in any order; ``files`` is read as they are needed.

        Raises CheckError where no worker can be started.
        """
        waiting, coming = deque[Given[T]](), iter(files)
        while self._give(waiting, coming):
            for worker in self._heard():
                yield from self._took(worker)

    def close(self) -> None:
        """End all of them."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._selector.close()

    def _give(self, waiting: deque[Given[T]], coming: Iterator[Given[T]]) -> bool:
        """Give each worker that is free a file; say whether there is anything to wait for."""
        while True:
            free = next((w for w in self._workers if w.is_free), None)
            starting = sum(not w.is_ready for w in self._workers)
            room = len(self._workers) < self._most
            if (free or room) and len(waiting) <= starting:
                waiting.extend([one for one in [next(coming, None)] if one])
            if free and waiting:
                free.give(waiting.popleft())
            elif room and len(waiting) > starting:
                self._start()
            else:
                return bool(waiting) or any(w.file for w in self._workers)

    def _start(self) -> None:
        try:
            worker = _Worker[T](self._terms)
        except OSError as error:
            raise CheckError(f"no process to check in: {error.strerror}") from None
        self._workers.append(worker)
        self._selector.register(worker.fd, selectors.EVENT_READ, worker)

    def _heard(self) -> list[_Worker[T]]:
        """Wait for what a worker has to say, or for one to have had its time."""
        now = time.monotonic()
        ends = [worker.deadline for worker in self._workers if worker.deadline]
        found = self._selector.select(max(0.0, min(ends) - now) if ends else None)
        for worker in self._workers:
            if worker.deadline and worker.deadline <= time.monotonic():
                worker.kill()
        return [key.data for key, _ in found]

    def _took(self, worker: _Worker[T]) -> Iterator[tuple[T, Verdict]]:
        file = worker.file
        verdict = worker.hear()
        if worker.has_ended:
            self._selector.unregister(worker.fd)
            self._workers.remove(worker)
            how = worker.end()
            if not worker.is_ready:
                raise CheckError(f"the process that checks did not start: {how}")
            verdict = _lost(how)
        if file is not None and verdict is not None:
            yield file.known_by, verdict


class _Worker(Generic[T]):
    """One process. ``file`` is what it has in hand. Raises OSError where it can't be started."""

    def __init__(self, terms: Terms) -> None:
        argv = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, *import_path()]
        early = {name: value for name, value in os.environ.items() if name.startswith(_EARLY)}
        self._limits = terms.limits
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and words of ours
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libraries quote the files they read
            env=early,
            bufsize=0,
        )
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        self.fd = self._process.stdout.fileno()
        self._splitter = frames.Splitter()
        self._decode = frames.Decoder[Ready | Judged](Ready | Judged)
        self.file: Given[T] | None = None
        self.is_ready = self.has_ended = self._overdue = False
        self.deadline = time.monotonic() + _START
        self._send(bytes(frames.encode(terms)))

    @property
    def is_free(self) -> bool:
        """Whether it waits for a file, and will live to read it."""
        return self.is_ready and self.file is None and not self._overdue

    def give(self, file: Given[T]) -> None:
        """Hand a file over."""
        self.file = file
        self.deadline = time.monotonic() + self._limits.seconds
        task = Task(file.kind, len(file.content), file.place)
        self._send(bytes(frames.encode(task)), file.content)

    def _send(self, *parts: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(OSError):  # one that is gone is seen by its hanging up
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[self._process.stdin.write(view) or 0 :]

    def hear(self) -> Verdict | None:
        """Take what it says; return its verdict when that is whole."""
        data = os.read(self.fd, _READ_SIZE)
        self.has_ended = not data
        try:
            for payload in self._splitter.feed(data):
                message = self._decode(payload)
                self.is_ready, self.file, self.deadline = True, None, 0.0
                if isinstance(message, Judged):
                    return message.verdict
        except WireError:
            self._process.kill()
            self.has_ended = True
        return None

    def kill(self) -> None:
        """End one that has had its time; it is heard to hang up."""
        self._overdue, self.deadline = True, 0.0
        self._process.kill()

    def end(self) -> str:
        """End it, and return how it ended."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if not self.has_ended:
            self._process.kill()
        return self._limits.why(self._process.wait(), overdue=self._overdue)


def _lost(how: str) -> Verdict:
    return Verdict((Found(own_finding("file-not-checked", how)),))


# The process that reads files: one after another, with little memory and time for each.
#
# Frames come on descriptor 0, answers go to 1. A file that takes too much ends the process, and
# what is told of the file then is how that ended.


def main() -> None:
    """Serve until the other side hangs up."""
    tasks, answers = os.fdopen(0, "rb"), os.fdopen(1, "wb")
    terms = frames.Decoder[Terms](Terms)(_frame(tasks))
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, terms.limits.memory)
    by = by_terms(terms)
    decode = frames.Decoder[Task](Task)
    _answer(answers, Ready())
    while True:
        task = decode(_frame(tasks))
        content = _exactly(tasks, task.size)
        _limit(resource.RLIMIT_CPU, math.ceil(_used()) + terms.limits.cpu_seconds)
        _answer(answers, Judged(_verdict(content, task, by)))
        forget()


def by_terms(terms: Terms) -> By:
    """Return what files are judged by; the policy is read when something asks for less of it."""
    project = Path(os.fsdecode(terms.project))

    def placed(project: Path) -> Policy:
        from cellblock.policy import (  # noqa: PLC0415 - as needed
            load,
            paths,
        )
        from cellblock.policy.paths import Places  # noqa: PLC0415 - as above

        found = load.of_fields(terms.policy, file="the policy")
        folder = Path(os.fsdecode(terms.folder))
        return paths.foreseen(found, Places(found.name, folder, project, None, here=False))

    @functools.cache
    def policy() -> Policy:
        return placed(project)

    def admitted(file: Path) -> Admitted:
        from cellblock.host.consent.admission.admission import of_notebook  # noqa: PLC0415 - as above

        # A kernel's project is the folder of its notebook, and so is what approvals are for.
        return of_notebook(placed(file.parent), file)

    return By(
        rules=Rules.from_builtins(terms.rules),
        admission=terms.policy["admission"],
        template=terms.template,
        policy=policy,
        admitted=admitted,
        project=project,
    )


def _verdict(content: bytes, task: Task, by: By) -> Verdict:
    try:
        return judge(content, task.kind, by, Path(os.fsdecode(task.place)))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - an error of ours is one file's, not the run's
        why = f"could not be checked, by a mistake of cellblock's own: {type(error).__name__}"
        return Verdict((Found(own_finding("file-not-checked", why)),))


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _limit(kind: int, most: int) -> None:
    """Set a soft limit, at most what is allowed."""
    hard = resource.getrlimit(kind)[1]
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (allowed, hard))


def _frame(stream: BinaryIO) -> bytes:
    return _exactly(stream, int.from_bytes(_exactly(stream, frames.HEADER), "big"))


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """Read so many bytes; end where there are no more."""
    content = stream.read(size)
    if len(content) < size:
        sys.exit()
    return content


def _answer(stream: BinaryIO, message: msgspec.Struct) -> None:
    stream.write(frames.encode(message))
    stream.flush()
