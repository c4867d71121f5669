from __future__ import annotations

import struct

import pytest

from cellblock.guest.confine import bpf
from cellblock.guest.confine.bpf import Label, Op
from unit.guest.confine.simulator import run

RETURN_1 = [Label("one"), Op(bpf.RET, 1)]
RETURN_2 = [Label("two"), Op(bpf.RET, 2)]


def at(value: int) -> bytes:
    return struct.pack("=I", value) + bytes(60)


def test_a_conditional_jump_reaches_its_label():
    code = bpf.assemble(
        [Op(bpf.LD_W_ABS, 0), Op(bpf.JEQ, 7, yes="one", no="two"), *RETURN_1, *RETURN_2]
    ).code

    assert run(code, at(7)) == 1
    assert run(code, at(8)) == 2


@pytest.mark.parametrize("distance", [253, 254, 255, 256, 257, 300, 3000])
@pytest.mark.parametrize("far", ["yes", "no", "both"])
def test_a_jump_beyond_255_instructions_arrives(distance, far):
    yes = "one" if far in ("yes", "both") else ""
    no = "two" if far in ("no", "both") else ""
    near = [Op(bpf.RET, 3)]
    padding = [Op(bpf.LD_W_ABS, 0)] * distance
    code = bpf.assemble(
        [
            Op(bpf.LD_W_ABS, 0),
            Op(bpf.JEQ, 7, yes=yes, no=no),
            *near,
            *padding,
            *RETURN_1,
            *RETURN_2,
        ]
    ).code

    assert run(code, at(7)) == (1 if yes else 3)
    assert run(code, at(8)) == (2 if no else 3)


def test_a_slot_is_filled_and_nothing_else():
    program = bpf.assemble(
        [
            Op(bpf.LD_W_ABS, 0),
            Op(bpf.JEQ, slot=True, yes="one"),
            Op(bpf.JEQ, 5, yes="two"),
            *RETURN_1,
            *RETURN_2,
        ]
    )

    assert program.slots == (1,)
    assert struct.unpack_from("=I", program.filled(4242), 12)[0] == 4242
    assert run(program.filled(4242), at(5)) == 2


def test_a_jump_to_nowhere_is_an_error():
    with pytest.raises(KeyError, match="nowhere"):
        bpf.assemble([Op(bpf.JEQ, 1, yes="nowhere"), Op(bpf.RET, 0)])
