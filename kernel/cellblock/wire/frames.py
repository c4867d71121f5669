"""Frames: four bytes of length, big-endian, then that many bytes of msgpack.

``Splitter`` is the pure half: bytes in, payloads out, bounds kept. The sockets are the callers'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from cellblock.errors import FrameTooLargeError, WireError

if TYPE_CHECKING:
    from collections.abc import Iterator


# What a payload may be made of, seen before a single value of it is made: two things that a decoder
# does not bound. How many values there are, each of which costs its reader 60 bytes and more
# whatever it takes on the wire; and maps whose keys are chosen to meet in a dict. Arrays become
# tuples, whose hashes anybody can compute: a megabyte of keys that share one takes half a minute
# to read, so none is a key. Numbers can be chosen that walk the same places of a dict one after
# the other, which takes as long as the square of their count: so much do they count for. Texts
# and bytes are hashed with a secret.
#
# Source: the msgpack specification, "Formats"; CPython's Objects/tupleobject.c, dictobject.c.

#: The most values in one frame; a map counts for four and an extension for three, since they cost
#: as much. What the gateway passes on has half as many at most.
MAX_VALUES = 2_000_000
#: Keys of one map that are no text, for each of which such a key counts for one value more.
KEYS_A_VALUE = 32
#: Payloads up to here are not looked through: nothing in them is dear.
SMALL = 2 << 10
#: Items of an array that are looked at together, and how many it must have for that.
_RUN, _RUN_FROM = 256, 16
_ARRAY, _MAP = 1, 2


def _heads() -> tuple[bytes, bytes, bytes, bytes]:
    """Return, by a value's first byte: size, how many bytes give a length, array or map, cost.

    The size is that of the head, with what is in it where that is fixed; the length follows the
    first byte, and the size when it counts bytes.
    """
    size, width, kind = bytearray([1] * 256), bytearray(256), bytearray(256)
    size[0xA0:0xC0] = range(1, 33)  # short strings
    for first, extra in ((0xC4, 1), (0xC7, 2), (0xD9, 1)):  # bytes, extensions, strings
        for power in range(3):
            width[first + power] = 1 << power
            size[first + power] = extra + (1 << power)
    for power in range(4):
        size[0xCC + power] = size[0xD0 + power] = 1 + (1 << power)  # integers
    for power in range(5):
        size[0xD4 + power] = 2 + (1 << power)  # extensions of fixed size
    size[0xCA], size[0xCB] = 5, 9  # floats
    for first in (0xDC, 0xDE):  # arrays and maps
        size[first], size[first + 1] = 3, 5
        width[first], width[first + 1] = 2, 4
    for first in (*range(0x90, 0xA0), 0xDC, 0xDD):
        kind[first] = _ARRAY
    for first in (*range(0x80, 0x90), 0xDE, 0xDF):
        kind[first] = _MAP
    cost = bytearray([1] * 256)
    for first in (*range(0x80, 0x90), 0xDE, 0xDF):
        cost[first] = 4
    for first in (*range(0xC7, 0xCA), *range(0xD4, 0xD9)):
        cost[first] = 3
    return bytes(size), bytes(width), bytes(kind), bytes(cost)


_SIZE, _WIDTH, _KIND, _COST = _heads()
#: Whether a value that begins so is text, or bytes.
_TEXTS = {*range(0xA0, 0xC0), 0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB}
_TEXT = bytes(first in _TEXTS for first in range(256))


def check(payload: bytes | bytearray, start: int = 0) -> None:
    """Look through a payload that stands at ``start`` to the end.

    Raises ``FrameTooLargeError`` for too many values, ``WireError`` for an array or a map as a key.
    What ends early or never was msgpack is left for the decoder to refuse.
    """
    if len(payload) - start > SMALL:
        _walk(payload, start)


def _walk(payload: bytes | bytearray, at: int) -> None:
    """Walk over the heads of all values: one loop, as a frame has up to two million of them."""
    end, allowed = len(payload), MAX_VALUES
    #: Of an array or a map: what is left of it, and how many keys a map has.
    above: list[tuple[int, int]] = []
    left, keys = 1, 0
    while left or above:
        if not left:
            left, keys = above.pop()
            continue
        if at >= end:
            return
        first = payload[at]
        left -= 1
        allowed -= _COST[first]
        kind, width = _KIND[first], _WIDTH[first]
        length = int.from_bytes(payload[at + 1 : at + 1 + width], "big") if width else first & 15
        at += _SIZE[first]
        if keys and left & 1 and not _TEXT[first]:
            # Of a map's items those with an odd number behind them are keys.
            if kind:
                raise WireError("an array or a map is the key of a map")
            allowed -= keys // KEYS_A_VALUE
        if not kind:
            at += length if width else 0
        else:
            above.append((left, keys))
            left, keys = (2 * length, length) if kind == _MAP else (length, 0)
            if kind == _ARRAY and length >= _RUN_FROM:
                alike, size, cost = _run(payload, at, length)
                left, at = left - alike, at + alike * size
                allowed -= alike * cost
        if allowed < 0:
            raise FrameTooLargeError(f"over {MAX_VALUES} values in one frame")


def _run(payload: bytes | bytearray, at: int, most: int) -> tuple[int, int, int]:
    """Return how many items from ``at`` on are alike, such as floats, and size and cost of each.

    At most ``most``, and in whole runs but for the last: one slice tells the heads of many.
    """
    first = payload[at : at + 1]
    if not first or _WIDTH[first[0]] or _KIND[first[0]]:
        return 0, 0, 0
    size, alike, same = _SIZE[first[0]], 0, _RUN
    while same == _RUN and alike < most:
        begin = at + alike * size
        heads = payload[begin : begin + min(most - alike, _RUN) * size : size]
        same = len(heads) - len(heads.lstrip(first))
        alike += same
    return alike, size, _COST[first[0]]


#: The largest payload either side accepts: a 20 MB figure passes, a flood does not.
MAX_FRAME = 24 * 2**20
HEADER = 4
#: Payloads from here on are read into their own place.
_LARGE = 1 << 16
#: Characters of why a payload is no message: names in it are the sender's.
LONGEST_WHY = 200
T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytearray:
    """Return ``message`` as one frame.

    Raises ``FrameTooLargeError`` beyond a cap, ``TypeError`` for what can't be carried.
    """
    frame = bytearray(HEADER)
    _encoder.encode_into(message, frame, HEADER)
    size = len(frame) - HEADER
    if size > MAX_FRAME:
        raise FrameTooLargeError(f"{size} bytes in one {type(message).__name__}")
    try:
        check(frame, HEADER)
    except FrameTooLargeError:
        raise
    except WireError as exc:
        raise TypeError(str(exc)) from None
    frame[:HEADER] = size.to_bytes(HEADER, "big")
    return frame


class Splitter:
    """Cuts a byte stream into payloads.

    Never holds more than one frame's cap and one read; raises ``FrameTooLargeError`` on the header
    of a frame that announces more.
    """

    def __init__(self, cap: int = MAX_FRAME) -> None:
        self._cap = cap
        self._buffer = bytearray()
        #: A large payload that has begun to arrive, and how much of it has.
        self._large, self._arrived = bytearray(), 0
        #: Payloads so far.
        self.taken = 0

    @property
    def partial(self) -> bool:
        """Whether a frame has begun to arrive and not ended."""
        return bool(self._buffer or self._large)

    def room(self) -> memoryview:
        """Return the rest of a large payload, to read into; empty where none has begun."""
        return memoryview(self._large)[self._arrived :]

    def filled(self, size: int) -> Iterator[bytearray]:
        """Note that so much was read into ``room``; yield the payload if that completes it."""
        self._arrived += size
        if self._large and self._arrived == len(self._large):
            large, self._large, self._arrived = self._large, bytearray(), 0
            self.taken += 1
            yield large

    def feed(self, data: bytes) -> Iterator[bytes | bytearray]:
        """Yield every payload that ``data`` completes."""
        if self._large:
            with self.room() as room:
                size = min(len(room), len(data))
                room[:size] = data[:size]
            yield from self.filled(size)
            data = data[size:]
        buffer, start = self._buffer, 0
        buffer += data
        try:
            while len(buffer) - start >= HEADER:
                size = int.from_bytes(buffer[start : start + HEADER], "big")
                if size > self._cap:
                    raise FrameTooLargeError(
                        f"a frame announces {size} bytes, the cap is {self._cap}"
                    )
                begin, end = start + HEADER, start + HEADER + size
                if len(buffer) < end:
                    if size >= _LARGE:
                        # Read into its place from now on, so that there is no second copy of it.
                        self._large, self._arrived = bytearray(size), len(buffer) - begin
                        self._large[: self._arrived] = buffer[begin:]
                        start = len(buffer)
                    break
                self.taken += 1
                start = end
                yield bytes(buffer[begin:end])
        finally:
            del buffer[:start]


class Decoder(Generic[T]):
    """Strict decoding of payloads into one union of message types."""

    def __init__(self, union: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(union).decode

    def __call__(self, payload: bytes | bytearray) -> T:
        """Return the message, or raise ``WireError`` for anything that is not one."""
        check(payload)
        try:
            return self._decode(payload)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as exc:
            # Unknown names stand in it whole, and as they came.
            why = str(exc)[:LONGEST_WHY]
            why = "".join(char if char.isprintable() else "\ufffd" for char in why)
            raise WireError(f"undecodable frame: {why}") from None
