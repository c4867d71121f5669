"""A process that reads and judges files for ``cellblock check``.

It has one file at a time, with little memory and time for it. Its parent (`check.CheckWorkers`)
sends the options, then tasks, over a socket that is stdin here, and gets a verdict for each. Each
worker imports this module before its first file.
"""

from __future__ import annotations

import math
import os
import resource
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.analysis import forget
from cellblock.batch.judge import JudgeContext, judge
from cellblock.batch.verdict import (
    OUT_OF_MEMORY,
    CheckOptions,
    CheckTask,
    Verdict,
    WorkerReady,
    not_checked,
)
from cellblock.host.consent.admission import of_notebook
from cellblock.host.files import upgraded
from cellblock.wire import frames

if TYPE_CHECKING:
    from typing import BinaryIO


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
        parent.sendall(frames.encode(_judge(content, task, context)))
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
