"""The process that reads files: one after another, with little memory and time for each.

Frames come on descriptor 0, answers go to 1. A file that takes too much ends the process, and what
is told of the file then is how that ended.
"""

from __future__ import annotations

import functools
import math
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cellblock.analysis import Rules, forget
from cellblock.batch.cells import By
from cellblock.batch.judge import judge
from cellblock.batch.limits import OUT_OF_MEMORY
from cellblock.batch.rules import own_finding
from cellblock.batch.verdict import Found, Judged, Ready, Task, Terms, Verdict
from cellblock.wire import frames

if TYPE_CHECKING:
    import msgspec

    from cellblock.analysis.admission import Admitted
    from cellblock.policy.model import Policy


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
        from cellblock.policy import load, placing  # noqa: PLC0415 - slow, and few files ask
        from cellblock.policy.paths import Places  # noqa: PLC0415 - as above

        found = load.of_fields(terms.policy, file="the policy")
        folder = Path(os.fsdecode(terms.folder))
        return placing.foreseen(found, Places(found.name, folder, project, None, here=False))

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
