"""The system call filter: compiled from ``allowlist`` and ``gates``, loaded last.

Source: seccomp(2), Documentation/userspace-api/seccomp_filter.rst. Calls under a foreign
architecture (32-bit entry, x32) are refused before their number is looked at: the same number
means another call there. Refusals are errors, not kills, so that Python can explain them.
"""

from __future__ import annotations

import ctypes
import errno
import struct
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine import allowlist, bpf, libc
from cellblock.guest.confine.arch import named
from cellblock.guest.confine.bpf import Label, Op
from cellblock.guest.confine.conditions import (
    Gate,
    Grants,
    In,
    Masked,
    MaskedIn,
    NotIn,
    Null,
    Own,
)
from cellblock.guest.confine.gates import gates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cellblock.guest.confine.arch import Arch
    from cellblock.guest.confine.conditions import Condition

SET_MODE_FILTER: Final = 1
RET_ALLOW: Final = 0x7FFF0000
RET_ERRNO: Final = 0x00050000

# struct seccomp_data
OFFSET_NR: Final = 0
OFFSET_ARCH: Final = 4
_ARGS: Final = 16

_ALLOW: Final = "allow"


def low(arg: int) -> int:
    """Return where the low 32 bits of argument ``arg`` are."""
    return _ARGS + 8 * arg + (4 if sys.byteorder == "big" else 0)


def high(arg: int) -> int:
    """Return where the high 32 bits of argument ``arg`` are."""
    return _ARGS + 8 * arg + (0 if sys.byteorder == "big" else 4)


def _refuse(number: int) -> str:
    return f"errno {number}"


@lru_cache(maxsize=16)
def build(arch_name: str, grants: Grants) -> bpf.Program:
    """Compile the filter; its slots take the guest's process id. Cached: the zygote warms it."""
    arch = named(arch_name)
    open_ = allowlist.ZYGOTE if grants.zygote else ()
    shut = {
        gate.name: gate
        for gate in gates(grants)
        if gate.name in arch.numbers and gate.name not in open_
    }
    leaves = _leaves(arch, grants, shut)
    items = [*_entry(arch), *_tree(_ranges(leaves)), *_gated(shut)]
    return bpf.assemble([*items, *_returns(items)])


def load(arch: Arch, program: bpf.Program, pid: int) -> str:
    """Put this thread under the filter, for good. Needs no_new_privs. Raises OSError."""
    load_filter(arch, program, pid, 0)
    return f"allowlist, {len(program)} instructions"


def load_filter(arch: Arch, program: bpf.Program, pid: int, flags: int) -> int:
    """Load ``program`` with ``pid`` in its slots; return what seccomp(2) does."""
    code = ctypes.create_string_buffer(program.filled(pid), len(program.code))
    # struct sock_fprog: unsigned short len; struct sock_filter *filter
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(program), ctypes.addressof(code)), struct.calcsize("@HP")
    )
    return libc.syscall(arch.numbers["seccomp"], SET_MODE_FILTER, flags, header)


def _leaves(arch: Arch, grants: Grants, shut: Mapping[str, Gate]) -> dict[int, str]:
    """Map each known call's number to the label that decides it."""
    groups = [*allowlist.ALWAYS]
    groups += allowlist.NETWORK if grants.network else ()
    groups += allowlist.SUBPROCESS if grants.subprocess else ()
    allowed = {name for group in groups for name in group.names}
    allowed |= set(allowlist.NEEDS_TRUNCATE_RIGHT) if grants.truncate else set()
    allowed |= set(allowlist.NEEDS_GATE) if grants.gated else set()
    allowed |= set(allowlist.ZYGOTE) if grants.zygote else set()
    allowed |= set(allowlist.REMOVING) if grants.removing else set()

    def leaf(name: str) -> str:
        if name in shut:
            return f"gate {name}"
        if name in allowed:
            return _ALLOW
        return _refuse(allowlist.REFUSED_WITH.get(name, errno.EPERM))

    return {number: leaf(name) for name, number in arch.numbers.items()}


def _ranges(leaves: Mapping[int, str]) -> list[tuple[int, str]]:
    """Return the first number of each run that is decided alike; unknown numbers: ENOSYS."""
    unknown = _refuse(errno.ENOSYS)
    runs: list[tuple[int, str]] = []
    for number in range(max(leaves) + 2):
        label = leaves.get(number, unknown)
        if not runs or runs[-1][1] != label:
            runs.append((number, label))
    return runs


def _entry(arch: Arch) -> Iterator[bpf.Item]:
    yield Op(bpf.LD_W_ABS, OFFSET_ARCH)
    yield Op(bpf.JEQ, arch.audit, no=_refuse(errno.EPERM))
    yield Op(bpf.LD_W_ABS, OFFSET_NR)
    if arch.foreign_bit:
        yield Op(bpf.JGE, arch.foreign_bit, yes=_refuse(errno.ENOSYS))


def _tree(runs: list[tuple[int, str]]) -> Iterator[bpf.Item]:
    """Binary search over the runs; the accumulator holds the number throughout."""
    if len(runs) == 1:
        yield Op(bpf.JA, yes=runs[0][1])
        return
    middle = len(runs) // 2
    lower, upper = runs[:middle], runs[middle:]
    above = upper[0][1] if len(upper) == 1 else f"from {upper[0][0]}"
    below = lower[0][1] if len(lower) == 1 else ""
    yield Op(bpf.JGE, upper[0][0], yes=above, no=below)
    if len(lower) > 1:
        yield from _tree(lower)
    if len(upper) > 1:
        yield Label(above)
        yield from _tree(upper)


def _gated(shut: Mapping[str, Gate]) -> Iterator[bpf.Item]:
    for gate in shut.values():
        yield Label(f"gate {gate.name}")
        judged = [(one, _ALLOW) for one in gate.alternatives]
        judged += [(one, _refuse(0)) for one in gate.void]
        for nth, (conditions, verdict) in enumerate(judged):
            onward = f"gate {gate.name} {nth}"
            for condition in conditions:
                yield from _condition(condition, onward)
            yield Op(bpf.JA, yes=verdict)
            yield Label(onward)
        yield Op(bpf.JA, yes=_refuse(gate.errno))


def _condition(condition: Condition, otherwise: str) -> Iterator[bpf.Item]:
    """Fall through if the condition holds, else jump to ``otherwise``."""
    match condition:
        case In(arg, values):
            yield Op(bpf.LD_W_ABS, low(arg))
            yield from _one_of([Op(bpf.JEQ, value) for value in values], arg, otherwise)
        case Own(arg, others):
            known = [Op(bpf.JEQ, value) for value in others]
            yield Op(bpf.LD_W_ABS, low(arg))
            yield from _one_of([*known, Op(bpf.JEQ, slot=True)], arg, otherwise)
        case NotIn(arg, values):
            yield Op(bpf.LD_W_ABS, low(arg))
            for value in values:
                yield Op(bpf.JEQ, value, yes=otherwise)
        case Masked(arg, mask, value):
            yield Op(bpf.LD_W_ABS, low(arg))
            yield Op(bpf.AND, mask)
            yield Op(bpf.JEQ, value, no=otherwise)
        case MaskedIn(arg, mask, values):
            yield Op(bpf.LD_W_ABS, low(arg))
            yield Op(bpf.AND, mask)
            yield from _one_of([Op(bpf.JEQ, value) for value in values], arg, otherwise)
        case Null(arg):
            for half in (low(arg), high(arg)):
                yield Op(bpf.LD_W_ABS, half)
                yield Op(bpf.JEQ, 0, no=otherwise)


def _one_of(tests: list[Op], arg: int, otherwise: str) -> Iterator[bpf.Item]:
    """Compare the accumulator with each."""
    holds = f"{otherwise} arg {arg} holds"
    for test in tests[:-1]:
        yield Op(test.code, test.k, yes=holds, slot=test.slot)
    yield Op(tests[-1].code, tests[-1].k, no=otherwise, slot=tests[-1].slot)
    yield Label(holds)


def _returns(items: list[bpf.Item]) -> Iterator[bpf.Item]:
    """Place a return for each verdict that is jumped to."""
    wanted = {name for item in items if isinstance(item, Op) for name in (item.yes, item.no)}
    yield Label(_ALLOW)
    yield Op(bpf.RET, RET_ALLOW)
    for name in sorted(wanted):
        if name.startswith("errno "):
            yield Label(name)
            yield Op(bpf.RET, RET_ERRNO | int(name.removeprefix("errno ")))
