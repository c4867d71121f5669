"""``cellblock check``: files in, a report out. Nothing in the files runs.

Files that were judged before are taken from a cache (`VerdictCache`). The others are judged in
processes (`check_worker`), each with one file at a time and little memory and time for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

import cellblock
from cellblock.batch import files
from cellblock.batch.verdict import (
    MAX_FILE_BYTES,
    CheckedFile,
    CheckReport,
    CheckTask,
    FileKind,
    Problem,
    Verdict,
    WorkerReady,
    not_checked,
)
from cellblock.errors import CheckError, WireError
from cellblock.host.files import PrivateFile
from cellblock.host.guests.spawn import available_processors, import_path
from cellblock.host.session.history import default_path
from cellblock.wire import frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cellblock.batch.verdict import CheckOptions
    from cellblock.policy.model import Policy

_STDIN: Final = Path("-")


@dataclass(frozen=True, slots=True)
class StdinFile:
    """The content of standard input, and its name."""

    name: str
    content: bytes

    @property
    def kind(self) -> FileKind:
        """By the name's ending; a text without one is a notebook if it begins like one."""
        suffix = PurePath(self.name).suffix.lower()
        is_object = self.content[:4096].lstrip()[:1] == b"{"
        return files.KINDS.get(suffix, FileKind.notebook if is_object else FileKind.script)


class Check:
    """One check by a policy, in at most ``jobs`` processes. ``cache`` is asked first."""

    def __init__(
        self, policy: Policy, options: CheckOptions, *, jobs: int = 0, cache: VerdictCache | None
    ) -> None:
        self._policy, self._options, self._cache = policy, options, cache
        self._jobs = jobs or available_processors()
        self._verdicts = dict[files.File, Verdict]()
        self._problems = list[Problem]()

    def run(self, found: Sequence[files.File], *, stdin: StdinFile | None = None) -> CheckReport:
        """Check files, each once. Raise CheckError where nothing can be checked here."""
        workers = CheckWorkers(self._options, self._jobs)
        try:
            for item, verdict in workers.judge(self._unknown(found, stdin)):
                if verdict.problem:
                    self._problems.append(Problem(item.file.shown, verdict.problem))
                    continue
                self._verdicts[item.file] = verdict
                if self._cache:
                    self._cache.put(item.content, item.file.kind, verdict)
        finally:
            workers.close()
        if self._cache:
            self._cache.save()
        checked = tuple(
            CheckedFile(file.shown, file.kind, self._verdicts[file], self._policy.name)
            for file in dict.fromkeys([*found, *self._verdicts])
            if file in self._verdicts
        )
        problems = tuple(self._problems)
        return CheckReport(self._policy.name, self._options.template, checked, problems)

    def _unknown(self, found: Sequence[files.File], stdin: StdinFile | None) -> Iterator[WorkItem]:
        """Yield the files that have no verdict yet, with their content."""
        named = [] if stdin is None else [files.File(_STDIN, stdin.name, stdin.kind, _STDIN)]
        for file in [*named, *found]:
            is_stdin = stdin is not None and file.path == _STDIN
            try:
                content = stdin.content if stdin is not None and is_stdin else files.read(file)
            except files.NoFileError as error:
                self._verdicts[file] = not_checked(str(error), "file-not-readable")
                continue
            except OSError as error:
                self._problems.append(Problem(file.shown, f"can't be read: {error.strerror}"))
                continue
            if len(content) > MAX_FILE_BYTES:
                self._verdicts[file] = not_checked(f"is larger than {MAX_FILE_BYTES >> 20} MiB")
            elif self._cache and (known := self._cache.get(content, file.kind)):
                self._verdicts[file] = known
            else:
                path = file.shown if is_stdin else file.path  # it lies where its name says
                yield WorkItem(file, content, os.fsencode(files.absolute(path)))


# --- the worker processes -------------------------------------------------------------------------
# A worker that ends before it answered costs the verdict of its file, and another takes its place.
# Nothing else can end the check.

_BOOT: Final = (
    "import sys;sys.path[:] = sys.argv[1:];from cellblock.batch.check_worker import main;main()"
)
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


# --- the cache of verdicts ------------------------------------------------------------------------

#: Bytes of one file of verdicts, and how many such files there are: one for each set of rules.
MAX_CACHE_BYTES: Final = 64 << 20
MAX_CACHE_FILES: Final = 8
_SUFFIX: Final = ".verdicts"


def cache_folder() -> Path:
    """Return the folder of the cache, in the user's cache folder."""
    return default_path().parent / "check"


class VerdictCache:
    """Verdicts by ``options``, by content. Its methods never raise.

    A verdict is found only for the same content, policy, code of cellblock, Python and IPython. A
    verdict that depends on where a file lies or what else is there is not cached, as are those on
    this machine's time and memory. A file of the cache that is damaged, or not the user's alone, is
    ignored; one that can't be written is not.
    """

    def __init__(self, folder: Path, options: CheckOptions) -> None:
        self._folder = folder
        self._file = PrivateFile(folder / f"{_digest(options)}{_SUFFIX}", MAX_CACHE_BYTES)
        #: By content; what was used last is last.
        self._verdicts = dict[str, msgspec.Raw]()
        self._changed = False
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            stored = msgspec.msgpack.decode(self._file.read(), type=dict[str, msgspec.Raw])
            self._verdicts = stored

    def get(self, content: bytes, kind: FileKind) -> Verdict | None:
        """Return the verdict on a file of this content."""
        key = _key(content, kind)
        if (raw := self._verdicts.pop(key, None)) is None:
            return None
        try:
            verdict = msgspec.msgpack.decode(raw, type=Verdict)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        self._verdicts[key] = raw
        return verdict

    def put(self, content: bytes, kind: FileKind, verdict: Verdict) -> None:
        """Cache a verdict, unless it is one for this machine or location alone."""
        if not verdict.location_matters and not any(
            found.finding.rule == "file-not-checked" for found in verdict.findings
        ):
            self._verdicts[_key(content, kind)] = msgspec.Raw(msgspec.msgpack.encode(verdict))
            self._changed = True

    def save(self) -> None:
        """Write the cache, without what was used longest ago where it is too large."""
        if not self._changed:
            return
        sizes = {key: len(key) + len(bytes(raw)) + 16 for key, raw in self._verdicts.items()}
        left = sum(sizes.values())
        for key, size in sizes.items():
            if left <= MAX_CACHE_BYTES:
                break
            del self._verdicts[key]
            left -= size
        with contextlib.suppress(OSError):
            self._file.write(msgspec.msgpack.encode(self._verdicts))
            entries = [one for one in os.scandir(self._folder) if one.name.endswith(_SUFFIX)]
            entries.sort(key=lambda one: one.stat(follow_symlinks=False).st_mtime, reverse=True)
            for entry in entries[MAX_CACHE_FILES:]:
                Path(entry.path).unlink()


def _key(content: bytes, kind: FileKind) -> str:
    return hashlib.sha256(kind.encode() + b"\0" + content).hexdigest()


def _digest(options: CheckOptions) -> str:
    """Return the hash of all that a verdict depends on besides the file."""
    context = (
        msgspec.to_builtins([options.policy, options.rules, options.template, options.limits]),
        cellblock.__version__,
        _code_digest(),
        sys.version,
        [metadata.version(name) for name in ("ipython", "nbformat")],
    )
    text = json.dumps(context, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _code_digest() -> str:
    """Return the hash of all code that a verdict depends on: the version may be in development."""
    root, made = Path(cellblock.__file__).parent, hashlib.sha256()
    packages = ("analysis", "batch", "policy")
    for path in sorted(path for name in packages for path in (root / name).glob("*.py")):
        made.update(hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()
