"""The system call filter, compiled from the tables in ``syscalls`` and loaded as the last lock.

``build`` makes a binary search over call numbers, whose leaves allow a call, refuse it with an
errno, or check its arguments. Calls under a foreign architecture (32-bit entry, x32) are refused
before their number is looked at, because the same number means another call there. Refusals are
errors, not kills, so that Python can explain them.

The assembler is used by ``notify``, too, which builds the gate's filter.

Source: seccomp(2), Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import struct
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.guest.confine import libc, syscalls
from cellblock.guest.confine.arch import named
from cellblock.guest.confine.syscalls import (
    Below,
    Gate,
    Grants,
    In,
    Masked,
    NotIn,
    Null,
    Own,
    gates,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cellblock.guest.confine.arch import Arch
    from cellblock.guest.confine.syscalls import Condition


# An assembler for classic BPF, as seccomp filters use it.
#
# Source: Documentation/networking/filter.rst, seccomp(2). A conditional jump can skip at most 255
# instructions. If its target is farther away, the assembler puts a *bridge* right behind it: an
# unconditional jump, which reaches any instruction.

# <linux/bpf_common.h>
LD_W_ABS: Final = 0x20
JA: Final = 0x05
JEQ: Final = 0x15
JGE: Final = 0x35
AND: Final = 0x54
RET: Final = 0x06

_REACH: Final = 255


class Label(msgspec.Struct, frozen=True):
    """A place to jump to."""

    name: str


class Op(msgspec.Struct, frozen=True):
    """One instruction. ``yes`` and ``no`` are labels; an empty one means the next instruction.

    ``slot`` marks a constant that ``Program.load``'s caller fills in, such as the process id.
    """

    code: int
    k: int = 0
    yes: str = ""
    no: str = ""
    slot: bool = False


Item = Label | Op


class Program(msgspec.Struct, frozen=True):
    """Assembled code: ``sock_filter`` records, and which of them hold a slot."""

    code: bytes
    slots: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.code) // 8

    def filled(self, value: int) -> bytes:
        """Return the code with ``value`` in every slot."""
        code = bytearray(self.code)
        for index in self.slots:
            struct.pack_into("=I", code, index * 8 + 4, value)
        return bytes(code)


def assemble(items: Sequence[Item]) -> Program:
    """Resolve labels. Raises KeyError for a label that is jumped to and not placed anywhere.

    A bridge moves all instructions behind it, so that another jump may become too long. Places are
    therefore computed again until no jump needs a new bridge.
    """
    far: frozenset[tuple[int, str]] = frozenset()
    while True:
        places = _places(items, far)
        overlong = frozenset(
            (index, name)
            for index, item in enumerate(items)
            if isinstance(item, Op) and item.code != JA
            for name in (item.yes, item.no)
            if name and places[name] - places[index] - 1 > _REACH
        )
        if overlong <= far:
            return _emit(items, places, far)
        far |= overlong


def _bridges(index: int, op: Op, far: frozenset[tuple[int, str]]) -> list[str]:
    """Return the labels that an instruction reaches by a bridge."""
    return [name for name in dict.fromkeys((op.yes, op.no)) if (index, name) in far]


def _places(items: Sequence[Item], far: frozenset[tuple[int, str]]) -> dict[str | int, int]:
    """Map each label's name and each item's index to its place in the program."""
    places: dict[str | int, int] = {}
    position = 0
    for index, item in enumerate(items):
        if isinstance(item, Label):
            places[item.name] = position
        else:
            places[index] = position
            position += 1 + len(_bridges(index, item, far))
    return places


def _emit(
    items: Sequence[Item], places: Mapping[str | int, int], far: frozenset[tuple[int, str]]
) -> Program:
    records: list[tuple[int, int, int, int]] = []
    slots = []
    for index, op in enumerate(items):
        if isinstance(op, Label):
            continue
        position = len(records)
        if op.slot:
            slots.append(position)
        bridges = _bridges(index, op, far)
        # By name: how many instructions a jump skips.
        skips = {"": len(bridges)} | {name: nth for nth, name in enumerate(bridges)}
        skips |= {n: places[n] - position - 1 for n in (op.yes, op.no) if n and n not in skips}
        if op.code == JA:
            records.append((JA, 0, 0, skips[op.yes]))
        elif op.code in (LD_W_ABS, AND, RET):
            records.append((op.code, 0, 0, op.k))
        else:
            records.append((op.code, skips[op.yes], skips[op.no], op.k))
        for name in bridges:
            records.append((JA, 0, 0, places[name] - len(records) - 1))
    return Program(b"".join(struct.pack("=HBBI", *record) for record in records), tuple(slots))


SET_MODE_FILTER: Final = 1
RET_ALLOW: Final = 0x7FFF0000
RET_ERRNO: Final = 0x00050000

# struct seccomp_data
OFFSET_NR: Final = 0
OFFSET_ARCH: Final = 4
_ARGS: Final = 16

_ALLOW: Final = "allow"


def low(arg: int) -> int:
    """Return the offset of the low 32 bits of argument number ``arg`` in ``seccomp_data``."""
    return _ARGS + 8 * arg + (4 if sys.byteorder == "big" else 0)


def high(arg: int) -> int:
    """Return the offset of the high 32 bits of argument number ``arg`` in ``seccomp_data``."""
    return _ARGS + 8 * arg + (0 if sys.byteorder == "big" else 4)


def _refuse(number: int) -> str:
    return f"errno {number}"


@lru_cache(maxsize=16)
def build(arch_name: str, grants: Grants) -> Program:
    """Compile the filter. Its slots take the guest's process id.

    Cached, so that guests inherit the filter that their zygote has compiled (``confine.prepare``).
    """
    arch = named(arch_name)
    open_ = syscalls.ZYGOTE if grants.zygote else ()
    shut = {
        gate.name: gate
        for gate in gates(grants)
        if gate.name in arch.numbers and gate.name not in open_
    }
    leaves = _leaves(arch, grants, shut)
    items = [*_entry(arch), *_tree(_ranges(leaves)), *_gated(shut)]
    return assemble([*items, *_returns(items)])


def load(arch: Arch, program: Program, pid: int) -> str:
    """Put this thread under the filter, for good. Needs no_new_privs.

    Return a statement for the report. Raises OSError.
    """
    load_filter(arch, program, pid, 0)
    return f"allowlist, {len(program)} instructions"


def load_filter(arch: Arch, program: Program, pid: int, flags: int) -> int:
    """Load ``program`` with ``pid`` in its slots; return the result of seccomp(2).

    That is 0, or a descriptor if ``flags`` ask for a listener. Raises OSError.
    """
    code = ctypes.create_string_buffer(program.filled(pid), len(program.code))
    # struct sock_fprog: unsigned short len; struct sock_filter *filter
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(program), ctypes.addressof(code)), struct.calcsize("@HP")
    )
    return libc.syscall(arch.numbers["seccomp"], SET_MODE_FILTER, flags, header)


def _leaves(arch: Arch, grants: Grants, shut: Mapping[str, Gate]) -> dict[int, str]:
    """Map each known call's number to the label that decides it."""
    groups = [*syscalls.ALWAYS]
    groups += syscalls.NETWORK if grants.network else ()
    groups += syscalls.SUBPROCESS if grants.subprocess else ()
    allowed = {name for group in groups for name in group.names}
    allowed.update(syscalls.NEEDS_TRUNCATE_RIGHT if grants.truncate else ())
    allowed.update(syscalls.NEEDS_GATE if grants.gated else ())
    allowed.update(syscalls.ZYGOTE if grants.zygote else ())
    allowed.update(syscalls.REMOVING if grants.removing else ())
    allowed.update(syscalls.ENTERING if grants.entering else ())
    allowed.update(syscalls.ATTRIBUTES if grants.attributes else ())
    allowed.update(syscalls.APART if grants.apart else ())
    allowed.update(syscalls.LINKS if grants.subprocess else ())
    allowed.update(syscalls.TIMERS if grants.subprocess and grants.own_users else ())
    allowed.update(syscalls.ABOUT_PROCESSES if grants.gated else ())
    allowed.update(syscalls.GROUPING if grants.subprocess and grants.gated else ())

    def leaf(name: str) -> str:
        if name in shut:
            return f"gate {name}"
        if name in allowed:
            return _ALLOW
        return _refuse(syscalls.REFUSED_WITH.get(name, errno.EPERM))

    return {number: leaf(name) for name, number in arch.numbers.items()}


def _ranges(leaves: Mapping[int, str]) -> list[tuple[int, str]]:
    """Return runs of call numbers with the same label: each run's first number and its label.

    Unknown numbers get ENOSYS. The last run, above the highest known number, is one of these.
    """
    unknown = _refuse(errno.ENOSYS)
    runs: list[tuple[int, str]] = []
    for number in range(max(leaves) + 2):
        label = leaves.get(number, unknown)
        if not runs or runs[-1][1] != label:
            runs.append((number, label))
    return runs


def _entry(arch: Arch) -> Iterator[Item]:
    """Yield the check of the architecture, and leave the call's number in the accumulator."""
    yield Op(LD_W_ABS, OFFSET_ARCH)
    yield Op(JEQ, arch.audit, no=_refuse(errno.EPERM))
    yield Op(LD_W_ABS, OFFSET_NR)
    if arch.foreign_bit:
        yield Op(JGE, arch.foreign_bit, yes=_refuse(errno.ENOSYS))


def _tree(runs: list[tuple[int, str]]) -> Iterator[Item]:
    """Yield a binary search over the runs. The accumulator holds the call's number throughout."""
    if len(runs) == 1:
        yield Op(JA, yes=runs[0][1])
        return
    middle = len(runs) // 2
    lower = runs[:middle]
    upper = runs[middle:]
    above = upper[0][1] if len(upper) == 1 else f"from {upper[0][0]}"
    below = lower[0][1] if len(lower) == 1 else ""
    yield Op(JGE, upper[0][0], yes=above, no=below)
    if len(lower) > 1:
        yield from _tree(lower)
    if len(upper) > 1:
        yield Label(above)
        yield from _tree(upper)


def _gated(shut: Mapping[str, Gate]) -> Iterator[Item]:
    """Yield the checks of arguments, for each call that has a ``Gate`` in the tables.

    Its alternatives are tried in order, each a list of conditions that must all hold. The call is
    allowed by one of ``alternatives``, succeeds without being made by one of ``void``, and fails
    with an errno of its own by one of ``otherwise``; if none holds, it fails with the gate's errno.
    """
    for gate in shut.values():
        yield Label(f"gate {gate.name}")
        cases = [(conditions, _ALLOW) for conditions in gate.alternatives]
        cases += [(conditions, _refuse(0)) for conditions in gate.void]
        cases += [(conditions, _refuse(number)) for conditions, number in gate.otherwise]
        for nth, (conditions, verdict) in enumerate(cases):
            next_case = f"gate {gate.name} {nth}"
            for condition in conditions:
                yield from _condition(condition, next_case)
            yield Op(JA, yes=verdict)
            yield Label(next_case)
        yield Op(JA, yes=_refuse(gate.errno))


def _condition(condition: Condition, otherwise: str) -> Iterator[Item]:
    """Yield a test that falls through if the condition holds, else jumps to ``otherwise``."""
    match condition:
        case In(arg, values):
            yield Op(LD_W_ABS, low(arg))
            yield from _one_of([Op(JEQ, value) for value in values], arg, otherwise)
        case Own(arg, others):
            tests = [Op(JEQ, value) for value in others]
            yield Op(LD_W_ABS, low(arg))
            yield from _one_of([*tests, Op(JEQ, slot=True)], arg, otherwise)
        case NotIn(arg, values):
            yield Op(LD_W_ABS, low(arg))
            for value in values:
                yield Op(JEQ, value, yes=otherwise)
        case Masked(arg, mask, values):
            yield Op(LD_W_ABS, low(arg))
            yield Op(AND, mask)
            yield from _one_of([Op(JEQ, value) for value in values], arg, otherwise)
        case Below(arg, top):
            holds = f"{otherwise} arg {arg} holds"
            yield Op(LD_W_ABS, high(arg))
            yield Op(JGE, (top >> 32) + 1, yes=otherwise)
            yield Op(JGE, top >> 32, no=holds)
            yield Op(LD_W_ABS, low(arg))
            yield Op(JGE, top & 0xFFFF_FFFF, yes=otherwise)
            yield Label(holds)
        case Null(arg):
            for half in (low(arg), high(arg)):
                yield Op(LD_W_ABS, half)
                yield Op(JEQ, 0, no=otherwise)


def _one_of(tests: list[Op], arg: int, otherwise: str) -> Iterator[Item]:
    """Yield tests of the accumulator, one of which must hold; else jump to ``otherwise``."""
    holds = f"{otherwise} arg {arg} holds"
    for test in tests[:-1]:
        yield Op(test.code, test.k, yes=holds, slot=test.slot)
    yield Op(tests[-1].code, tests[-1].k, no=otherwise, slot=tests[-1].slot)
    yield Label(holds)


def _returns(items: list[Item]) -> Iterator[Item]:
    """Yield a return instruction for each verdict that some instruction jumps to."""
    targets = {name for item in items if isinstance(item, Op) for name in (item.yes, item.no)}
    yield Label(_ALLOW)
    yield Op(RET, RET_ALLOW)
    for name in sorted(targets):
        if name.startswith("errno "):
            yield Label(name)
            yield Op(RET, RET_ERRNO | int(name.removeprefix("errno ")))
