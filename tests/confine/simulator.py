"""A classic BPF machine, just enough of it to run a seccomp filter over made-up calls."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cellblock.guest.confine import seccomp


@dataclass(frozen=True)
class Call:
    number: int
    arch: int
    args: tuple[int, ...] = ()

    @property
    def packed(self) -> bytes:
        """``struct seccomp_data``: int nr; __u32 arch; __u64 ip; __u64 args[6]."""
        args = [arg & (2**64 - 1) for arg in (*self.args, 0, 0, 0, 0, 0, 0)[:6]]
        return struct.pack("=iIQ6Q", self.number, self.arch, 0, *args)


def run(code: bytes, data: bytes) -> int:
    """Return the filter's verdict. Raises on what the kernel's checker would refuse."""
    program = list(struct.iter_unpack("=HBBI", code))
    accumulator = at = 0
    while True:
        operation, yes, no, k = program[at]
        at += 1
        match operation:
            case 0x20:
                assert k % 4 == 0
                accumulator = struct.unpack_from("=I", data, k)[0]
            case 0x54:
                accumulator &= k
            case 0x05:
                at += k
            case 0x15:
                at += yes if accumulator == k else no
            case 0x35:
                at += yes if accumulator >= k else no
            case 0x06:
                return k
            case _:
                raise AssertionError(f"unknown instruction {operation:#x}")


def verdict(code: bytes, call: Call) -> int | str:
    """Return "allow" or the errno with which the call fails."""
    action = run(code, call.packed)
    if action == seccomp.RET_ALLOW:
        return "allow"
    assert action & 0xFFFF0000 == seccomp.RET_ERRNO
    return action & 0xFFFF
