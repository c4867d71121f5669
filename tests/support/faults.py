"""Makes system calls fail, or do nothing and report success, by a seccomp filter.

A fault is written CALL[:ARGUMENT=VALUE...]=ERRNO|nothing. Arguments are numbered from 0; a VALUE is
a number, or ``*`` for any but 0. The filter (seccomp(2)) also holds for all processes started under
it. "nothing" simulates a lock that reports success and has no effect.
"""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellblock.guest.confine import arch, seccomp
from cellblock.guest.confine.seccomp import Label, Op

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The answer of a call that reports success and is not made.
NOTHING = "nothing"
_RET_ALLOW, _RET_ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_NO_NEW_PRIVS, _SET_MODE_FILTER = 38, 1
_ARGS = 16


@dataclass(frozen=True)
class Fault:
    """A system call, the values of arguments that it must have, and the errno to answer."""

    call: str
    where: tuple[tuple[int, str], ...]
    answer: int


def fault(text: str) -> Fault:
    """Parse a fault."""
    what, _, answer = text.rpartition("=")
    call, *words = what.split(":")
    where = tuple((int(nth), value) for nth, _, value in (word.partition("=") for word in words))
    return Fault(call, where, 0 if answer == NOTHING else getattr(errno, answer))


def install(*texts: str) -> None:
    """Install these faults in this thread, and so in all processes that it starts."""
    exec(source(*texts), {})


def source(*texts: str) -> str:
    """Return code that does the same as ``install`` without importing cellblock."""
    code = _program([fault(text) for text in texts])
    number = arch.current().numbers["seccomp"]
    return (
        "import ctypes, os, struct\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"code = ctypes.create_string_buffer({code!r}, {len(code)})\n"
        f"head = struct.pack('@HP', {len(code) // 8}, ctypes.addressof(code))\n"
        "head = ctypes.create_string_buffer(head, len(head))\n"
        f"os.geteuid() and libc.prctl({_PR_SET_NO_NEW_PRIVS}, 1, 0, 0, 0)\n"
        f"if libc.syscall({number}, {_SET_MODE_FILTER}, 0, head):\n"
        "    raise OSError(ctypes.get_errno(), 'no fault can be made here')\n"
    )


def prefix(*texts: str) -> tuple[str, ...]:
    """Return the words to put before a command so that it runs under these faults."""
    become = "import sys; os.execvp(sys.argv[1], sys.argv[1:])"
    return (sys.executable, "-S", "-c", source(*texts) + become)


def _program(faults: list[Fault]) -> bytes:
    return seccomp.assemble(list(_items(faults))).code


def _items(faults: list[Fault]) -> Iterator[seccomp.Item]:
    machine = arch.current()
    yield Op(seccomp.LD_W_ABS, 4)
    yield Op(seccomp.JEQ, machine.audit, no="allow")
    for nth, entry in enumerate(faults):
        onward = f"after {nth}"
        yield Op(seccomp.LD_W_ABS, 0)
        yield Op(seccomp.JEQ, machine.numbers[entry.call], no=onward)
        for arg, value in entry.where:
            yield Op(seccomp.LD_W_ABS, _ARGS + 8 * arg)
            if value == "*":
                yield Op(seccomp.JEQ, 0, yes=onward)
            else:
                yield Op(seccomp.JEQ, int(value, 0), no=onward)
        yield Op(seccomp.RET, _RET_ERRNO | entry.answer)
        yield Label(onward)
    yield Label("allow")
    yield Op(seccomp.RET, _RET_ALLOW)
