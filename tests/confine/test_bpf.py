from __future__ import annotations

import struct

import pytest

from cellblock.guest.confine import seccomp
from cellblock.guest.confine.seccomp import Label, Op
from confine.simulator import run

RETURN_1 = [Label("one"), Op(seccomp.RET, 1)]
RETURN_2 = [Label("two"), Op(seccomp.RET, 2)]


def at(value: int) -> bytes:
    return struct.pack("=I", value) + bytes(60)


def test_a_conditional_jump_reaches_its_label():
    code = seccomp.assemble(
        [Op(seccomp.LD_W_ABS, 0), Op(seccomp.JEQ, 7, yes="one", no="two"), *RETURN_1, *RETURN_2]
    ).code

    assert run(code, at(7)) == 1
    assert run(code, at(8)) == 2


def test_a_jump_beyond_255_instructions_arrives():
    for distance in (253, 254, 255, 256, 257, 300, 3000):
        for yes, no in (("one", ""), ("", "two"), ("one", "two")):
            padding = [Op(seccomp.LD_W_ABS, 0)] * distance
            jump = [Op(seccomp.LD_W_ABS, 0), Op(seccomp.JEQ, 7, yes=yes, no=no), Op(seccomp.RET, 3)]
            code = seccomp.assemble([*jump, *padding, *RETURN_1, *RETURN_2]).code
            came = run(code, at(7)), run(code, at(8))
            assert came == (1 if yes else 3, 2 if no else 3), (distance, yes, no)


def test_a_slot_is_filled_and_nothing_else():
    program = seccomp.assemble(
        [
            Op(seccomp.LD_W_ABS, 0),
            Op(seccomp.JEQ, slot=True, yes="one"),
            Op(seccomp.JEQ, 5, yes="two"),
            *RETURN_1,
            *RETURN_2,
        ]
    )

    assert program.slots == (1,)
    assert struct.unpack_from("=I", program.filled(4242), 12)[0] == 4242
    assert run(program.filled(4242), at(5)) == 2


def test_a_jump_to_nowhere_is_an_error():
    with pytest.raises(KeyError, match="nowhere"):
        seccomp.assemble([Op(seccomp.JEQ, 1, yes="nowhere"), Op(seccomp.RET, 0)])
