# ruff: noqa: BLE001 - generated programs raise anything
"""Runs batches of generated programs, each in a fork of a process that was prepared once."""

import asyncio
import io
import json
import os
import signal
import sys
import time
from asyncio import events

from canary import canary

from cellblock.descriptors import is_readable

MARKS = ("__builtins__", "<frame ", "<code object", "(built-in)>", "(frozen)>", "' from '/")


class TooLongError(BaseException):
    """A generated program ran for too long."""


def too_long(*_):
    raise TooLongError


def try_programs(guest, programs, write, seconds):
    """Run each program in a copy of the prepared namespace; write what forbidden things it saw."""
    signal.signal(signal.SIGALRM, too_long)
    for number, program in enumerate(programs):
        seen = []

        def see(thing, seen=seen):
            try:
                if canary(thing):
                    seen.append(f"{type(thing).__name__} {getattr(thing, '__name__', '')}"[:80])
            except Exception:
                return  # an object that can't be compared is no module

        def told(text, seen=seen):
            seen += [mark for mark in MARKS if mark in str(text)]

        own = {**guest.space, "see": see, "told": told}
        ended = False
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            exec(guest.compiled(program), own)
            ended = True
        except BaseException:
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(write, json.dumps([number, ended, seen[:1]]).encode() + b"\n")


def batch(guest, programs, limits):
    """Run programs in a fork; return how many ended, and which saw something forbidden."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        sys.stdout = sys.__stdout__ = sys.stderr = sys.__stderr__ = io.StringIO()
        asyncio.set_event_loop(asyncio.new_event_loop())
        events._set_running_loop(asyncio.get_event_loop())
        try_programs(guest, programs, write, limits["seconds"])
        os._exit(0)
    os.close(write)
    out, deadline = b"", time.monotonic() + limits["batch_seconds"]
    while time.monotonic() < deadline and is_readable(read, 0.5):
        part = os.read(read, 65536)
        if not part:
            break
        out += part
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read)
    told = [json.loads(line) for line in out.splitlines()]
    return {
        "ended": sum(ended for _, ended, _ in told),
        "breaches": [(number, seen[0]) for number, _, seen in told if seen],
    }


def serve(guest, work):
    """Answer batches from stdin, one in each line.

    ``work`` has the ``prelude``, which runs once before the first batch, the ``seconds`` for one
    program and the ``batch_seconds`` for a batch.
    """
    answers = os.fdopen(os.dup(1), "w")
    guest.run(work["prelude"])
    for line in sys.stdin:
        json.dump(batch(guest, json.loads(line), work), answers)
        answers.write("\n")
        answers.flush()
