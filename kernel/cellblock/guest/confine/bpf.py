"""An assembler for classic BPF, as seccomp filters use it.

Source: Documentation/networking/filter.rst, seccomp(2). A conditional jump reaches 255
instructions; where a target is farther off, the assembler puts an unconditional jump (which
reaches anywhere) right behind the conditional one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# <linux/bpf_common.h>
LD_W_ABS: Final = 0x20
JA: Final = 0x05
JEQ: Final = 0x15
JGE: Final = 0x35
JSET: Final = 0x45
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
    """Resolve labels. Raises KeyError for a label that is jumped to and nowhere placed."""
    far: frozenset[tuple[int, str]] = frozenset()
    while True:
        places = _layout(items, far)
        overlong = frozenset(_overlong(items, places, far))
        if overlong <= far:
            return _emit(items, places, far)
        far |= overlong


def _targets(op: Op) -> tuple[str, ...]:
    return tuple(name for name in (op.yes, op.no) if name)


def _trampolines(index: int, op: Op, far: frozenset[tuple[int, str]]) -> list[str]:
    if op.code == JA:
        return []
    return [name for name in dict.fromkeys(_targets(op)) if (index, name) in far]


def _layout(items: Sequence[Item], far: frozenset[tuple[int, str]]) -> dict[str | int, int]:
    """Map each label's name and each item's index to its place in the program."""
    places: dict[str | int, int] = {}
    at = 0
    for index, item in enumerate(items):
        if isinstance(item, Label):
            places[item.name] = at
            continue
        places[index] = at
        at += 1 + len(_trampolines(index, item, far))
    return places


def _overlong(
    items: Sequence[Item], places: Mapping[str | int, int], far: frozenset[tuple[int, str]]
) -> Iterable[tuple[int, str]]:
    for index, item in enumerate(items):
        if isinstance(item, Op) and item.code != JA:
            for name in _targets(item):
                if (index, name) not in far and places[name] - places[index] - 1 > _REACH:
                    yield index, name


def _emit(
    items: Sequence[Item], places: Mapping[str | int, int], far: frozenset[tuple[int, str]]
) -> Program:
    code = bytearray()
    slots = []
    for index, item in enumerate(items):
        if isinstance(item, Label):
            continue
        at = places[index]
        bridges = _trampolines(index, item, far)
        if item.slot:
            slots.append(at)
        code += _record(item, at, places, bridges)
        for nth, name in enumerate(bridges, start=1):
            code += struct.pack("=HBBI", JA, 0, 0, places[name] - (at + nth) - 1)
    return Program(bytes(code), tuple(slots))


def _record(op: Op, at: int, places: Mapping[str | int, int], bridges: Sequence[str]) -> bytes:
    if op.code == JA:
        return struct.pack("=HBBI", JA, 0, 0, places[op.yes] - at - 1)

    def offset(name: str) -> int:
        if not name:
            return len(bridges)
        return bridges.index(name) if name in bridges else places[name] - at - 1

    if op.code in (LD_W_ABS, AND, RET):
        return struct.pack("=HBBI", op.code, 0, 0, op.k)
    return struct.pack("=HBBI", op.code, offset(op.yes), offset(op.no), op.k)
