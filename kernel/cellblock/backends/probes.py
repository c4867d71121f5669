"""Probes: the guest's own locks, taken in a child process that then looks whether they hold."""

from __future__ import annotations

import os
import platform
import select
import signal
import time
from pathlib import Path
from typing import Final, NoReturn

from cellblock.backends.base import Support
from cellblock.wire.messages import LockReport, Plan

#: Seconds a probe may take; it takes about three milliseconds.
PATIENCE: Final = 2.0
_LONGEST: Final = 64 * 1024


def unprobed(why: str, *, usable: bool) -> Support:
    """Return a support that no probe backs."""
    return Support(
        usable=usable,
        why=why,
        os_kernel=platform.release(),
        abi=0,
        witnessed=(),
        time=_now(),
    )


def probe_locks(locks: tuple[str, ...]) -> Support:
    """Take ``locks`` in a child, all required, with an attempt and a positive control each."""
    if platform.system() != "Linux":
        return unprobed(f"{platform.system()} has no Landlock", usable=False)
    return judged(_ask_child(_plan(locks)))


def judged(answer: LockReport | str) -> Support:
    """Return what a probe's report is worth, or why there is none."""
    if isinstance(answer, str):
        return unprobed(answer, usable=False)
    witnessed = tuple(filter(None, answer.achieved.get("witness", "").split(", ")))
    unseen = {"files", "sockets", "processes"} - set(witnessed)
    return Support(
        usable=not unseen,
        why=f"not witnessed: {', '.join(sorted(unseen))}" if unseen else "seen to hold in a probe",
        os_kernel=platform.release(),
        abi=_abi(answer),
        witnessed=witnessed,
        time=_now(),
        report=answer,
    )


def plan_for(
    locks: tuple[str, ...], unseen: tuple[str, ...], bounded: tuple[tuple[str, int], ...] = ()
) -> str:
    """Return what ``answer_inside`` takes."""
    import msgspec  # noqa: PLC0415

    return msgspec.json.encode(_plan(locks, unseen, bounded)).decode()


def answer_inside(plan: str) -> None:
    """Print what a child of ours reports that takes the locks of ``plan``: behind a wrapper."""
    import msgspec  # noqa: PLC0415

    report = _ask_child(msgspec.json.decode(plan, type=Plan))
    os.write(1, msgspec.json.encode(report))


def answered(printed: bytes) -> LockReport | str:
    """Return what ``answer_inside`` has printed."""
    import msgspec  # noqa: PLC0415

    try:
        return msgspec.json.decode(printed[:_LONGEST], type=LockReport | str)
    except msgspec.MsgspecError as error:
        return f"the probe gave no answer: {error}"


def _plan(
    locks: tuple[str, ...],
    unseen: tuple[str, ...] = (),
    bounded: tuple[tuple[str, int], ...] = (),
) -> Plan:
    roots = _readable()
    return Plan(read_roots=roots, unseen=unseen, bounded=bounded, locks=locks, required=locks)


def _readable() -> tuple[str, ...]:
    return (str(Path(__file__).resolve().parent),)


def _ask_child(plan: Plan) -> LockReport | str:
    """Return the child's report, or why there is none."""
    import msgspec  # noqa: PLC0415 - the host has it anyway; doctor's import stays light

    ours, theirs = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _answer(plan, theirs)
    os.close(theirs)
    try:
        return msgspec.json.decode(_read_all(ours, pid), type=LockReport | str)
    except (msgspec.MsgspecError, OSError) as error:
        return f"the probe gave no answer: {error}"
    finally:
        os.close(ours)
        os.waitpid(pid, 0)


def _answer(plan: Plan, out: int) -> NoReturn:
    """Confine this child, write what came of it, end. Never returns into the parent's code."""
    status = 1
    try:
        import msgspec  # noqa: PLC0415

        from cellblock.guest.confine import ConfineError, confine  # noqa: PLC0415

        try:
            os.write(out, msgspec.json.encode(confine(plan)))
        except ConfineError as error:
            os.write(out, msgspec.json.encode(str(error)))
        status = 0
    finally:
        os._exit(status)


def _read_all(fd: int, pid: int) -> bytes:
    """Read to the end of the pipe; kill a child that takes too long. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    data = b""
    while len(data) < _LONGEST:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"none within {PATIENCE:g} s")
        part = os.read(fd, _LONGEST)
        if not part:
            break
        data += part
    return data


def _abi(report: LockReport) -> int:
    words = report.achieved.get("landlock", "").replace(",", "").split()
    return int(words[1]) if words[:1] == ["ABI"] else 0


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
