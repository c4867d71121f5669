"""What is dear to decode is refused before it is decoded."""

import time

import msgspec
import pytest

from cellblock.errors import FrameTooLargeError, WireError
from cellblock.wire import frames, messages

decode = frames.Decoder(messages.FromGuest)
WORD = (1 << 64) - 1
_PRIME_1, _PRIME_2, _PRIME_5 = 11400714785074694791, 14029467366897019727, 2870177450012600261


def colliding(count):
    """Yield pairs that hash alike as tuples (CPython, Objects/tupleobject.c), as msgpack keys."""
    back, first, found = pow(_PRIME_2, -1, 1 << 64), 0, 0
    while found < count:
        lane = (_PRIME_5 + first * _PRIME_2) & WORD
        lane = ((lane << 31 | lane >> 33) * _PRIME_1) & WORD
        second = ((12345 - lane) * back) & WORD
        if second < 2**61 - 1:
            found += 1
            yield b"\x92" + msgspec.msgpack.encode(first) + msgspec.msgpack.encode(second)
        first += 1


def table(keys):
    keys = list(keys)
    return b"\xdf" + len(keys).to_bytes(4, "big") + b"".join(key + b"\0" for key in keys)


def display(raw):
    return b"\x82\xa4type\xa7display\xa4data\x81\xa1a" + raw


def seconds(action, *arguments):
    started = time.process_time()
    action(*arguments)
    return time.process_time() - started


def test_keys_that_collide_are_what_would_hold_up_a_host():
    # Control: without the look they take far longer than as many that do not collide.
    read = msgspec.msgpack.Decoder().decode
    others = table(b"\x92" + msgspec.msgpack.encode(n) + b"\1" for n in range(6_000))
    alike = table(colliding(6_000))
    assert min(seconds(read, alike) for _ in range(3)) > 10 * seconds(read, others)


def test_numbers_as_keys_count_for_the_square_of_their_number():
    numbers = [b"\xce" + n.to_bytes(4, "big") for n in range(20_000)]
    frames.check(display(table(numbers[:5_000])))
    with pytest.raises(FrameTooLargeError):
        frames.check(display(table(numbers)))


def test_keys_that_collide_are_refused_at_once():
    payload = display(table(colliding(50_000)))
    with pytest.raises(WireError, match="an array or a map is the key of a map"):
        decode(payload)
    assert seconds(refuse, payload) < 1


def test_a_decoder_looks_before_it_decodes():
    payload = display(table(colliding(200)))
    assert len(payload) > frames.SMALL
    with pytest.raises(WireError, match="an array or a map is the key of a map"):
        decode(payload)


def refuse(payload):
    with pytest.raises(WireError):
        decode(payload)


def test_in_what_is_not_looked_through_they_cost_little():
    keys = list(colliding(2_000))
    small = display(table(keys[: frames.SMALL // 24]))
    assert len(small) <= frames.SMALL
    assert min(seconds(decode, small) for _ in range(3)) < 0.2


@pytest.mark.parametrize(
    "value",
    [[1.5] * 2_100_000, ["ab"] * 2_100_000, [{}] * 2_100_000, [[0] * 20] * 101_000],
    ids=["floats", "texts", "maps", "arrays"],
)
def test_too_many_values_are_refused(value):
    with pytest.raises(FrameTooLargeError, match="over 2000000 values"):
        frames.check(msgspec.msgpack.encode(value))


@pytest.mark.parametrize(
    "value",
    [
        [1.5] * 1_900_000,
        [1, 2.5, None, "x", b"y", [], {}] * 10_000,
        {"a" * n: list(range(n)) for n in range(300)},
        {n: {1.5: {None: b"x" * 70_000}} for n in range(20)},
        ["x" * 300_000, b"x" * 300_000],
    ],
    ids=["floats", "a mixture", "lengths", "keys that are no arrays", "long texts"],
)
def test_what_honest_guests_send_is_let_through(value):
    frames.check(msgspec.msgpack.encode(value))


def test_an_honest_guest_is_told_before_it_sends_what_would_end_it():
    data = {"application/json": {(n, n): "x" for n in range(2_000)}}
    with pytest.raises(TypeError, match="is the key of a map"):
        frames.encode(messages.Display(data=data))
