"""Frames: four bytes of length, big-endian, then that many bytes of msgpack, the *payload*.

``encode`` makes a frame. ``Splitter`` cuts a byte stream into payloads, ``Decoder`` makes messages
of them; both enforce bounds, and neither has a socket: callers read and write. ``check`` bounds
what a payload may cost its reader, before anything of it is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from cellblock.errors import FrameTooLargeError, WireError

if TYPE_CHECKING:
    from collections.abc import Iterator


# Bounds on the contents of a payload, checked before any value is made. A decoder does not bound
# two things:
#
# - How many values there are. Each costs its reader 60 bytes or more, however few it takes on the
#   wire.
# - Maps whose keys are chosen to collide in a dict. Arrays become tuples, whose hashes anybody can
#   compute: a megabyte of keys with the same hash takes half a minute to read. So arrays and maps
#   are refused as keys. Numbers can be chosen that probe the same places of a dict one after
#   another, which takes as long as the square of their count, so they count for that much. Texts
#   and bytes are hashed with a secret.
#
# Source: the msgpack specification, "Formats"; CPython's Objects/tupleobject.c, dictobject.c.

#: Most values in one frame. A map counts as four and an extension as three, which they cost. The
#: gateway passes on half as many at most.
MAX_VALUES = 2_000_000
#: A key that is not text counts as one more value for each so many keys of its map.
KEYS_A_VALUE = 32
#: Payloads of up to so many bytes are not checked: nothing in them can be expensive.
SMALL = 2 << 10
#: Items of an array that are looked at together, and the least length of an array for that.
_RUN, _RUN_FROM = 256, 16
_ARRAY, _MAP = 1, 2


def _heads() -> tuple[bytes, bytes, bytes, bytes]:
    """Return four tables, each indexed by the first byte of a msgpack value.

    - The size of the head, or of the whole value if its size is fixed.
    - The width of the length field that follows the first byte; 0 if there is none. The length
      counts bytes, or the items of an array or map.
    - The kind: ``_ARRAY``, ``_MAP``, or 0 for anything else.
    - The cost: as how many values it counts towards ``MAX_VALUES``.
    """
    size = bytearray([1] * 256)
    width = bytearray(256)
    kind = bytearray(256)
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
#: First bytes of texts and of bytes.
_TEXTS = {*range(0xA0, 0xC0), 0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB}
_TEXT = bytes(first in _TEXTS for first in range(256))


def check(payload: bytes | bytearray, start: int = 0) -> None:
    """Check the contents of a payload, which is all from ``start`` on.

    Raises ``FrameTooLargeError`` for too many values, ``WireError`` for an array or a map as a key.
    A payload that is incomplete or not msgpack is left for the decoder to refuse.
    """
    if len(payload) - start > SMALL:
        _walk(payload, start)


def _walk(payload: bytes | bytearray, position: int) -> None:
    """Walk over the heads of all values. A single loop, as there may be two million of them."""
    end = len(payload)
    allowed = MAX_VALUES
    # For each container around the current one: how many items are left, and its number of keys.
    outer: list[tuple[int, int]] = []
    remaining = 1
    keys = 0
    while remaining or outer:
        if not remaining:
            remaining, keys = outer.pop()
            continue
        if position >= end:
            return
        first = payload[position]
        remaining -= 1
        allowed -= _COST[first]
        kind = _KIND[first]
        width = _WIDTH[first]
        length = (
            int.from_bytes(payload[position + 1 : position + 1 + width], "big")
            if width
            else first & 15
        )
        position += _SIZE[first]
        if keys and remaining & 1 and not _TEXT[first]:
            # Keys and values of a map alternate. A key has an odd number of items after it.
            if kind:
                raise WireError("an array or a map is the key of a map")
            allowed -= keys // KEYS_A_VALUE
        if not kind:
            position += length if width else 0
        else:
            outer.append((remaining, keys))
            remaining, keys = (2 * length, length) if kind == _MAP else (length, 0)
            if kind == _ARRAY and length >= _RUN_FROM:
                alike, size, cost = _run(payload, position, length)
                remaining, position = remaining - alike, position + alike * size
                allowed -= alike * cost
        if allowed < 0:
            raise FrameTooLargeError(f"over {MAX_VALUES} values in one frame")


def _run(payload: bytes | bytearray, start: int, most: int) -> tuple[int, int, int]:
    """Count the items from ``start`` on that have the same first byte, such as floats.

    Return their number, at most ``most``, and the size and cost of each. Only items of a fixed size
    are counted, because one slice with a step then has the first bytes of many items.
    """
    first = payload[start : start + 1]
    if not first or _WIDTH[first[0]] or _KIND[first[0]]:
        return 0, 0, 0
    size = _SIZE[first[0]]
    alike = 0
    same = _RUN
    while same == _RUN and alike < most:
        begin = start + alike * size
        heads = payload[begin : begin + min(most - alike, _RUN) * size : size]
        same = len(heads) - len(heads.lstrip(first))
        alike += same
    return alike, size, _COST[first[0]]


#: Bytes of the largest payload that either side accepts: enough for a figure of 20 MB.
MAX_FRAME = 24 * 2**20
HEADER = 4
#: Payloads of at least so many bytes are read into a buffer of their own.
_LARGE = 1 << 16
#: Most characters of the reason why a payload is not a message. It may contain the sender's names.
LONGEST_WHY = 200
T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytearray:
    """Return ``message`` as one frame.

    Raises ``FrameTooLargeError`` if it exceeds a bound, ``TypeError`` if msgpack can't carry it.
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

    Holds at most one frame of ``cap`` bytes and one read. Raises ``FrameTooLargeError`` when the
    header of a frame announces more.

    A caller may instead read a large payload directly into ``room``, and report that to ``filled``,
    which saves a copy.
    """

    def __init__(self, cap: int = MAX_FRAME) -> None:
        self._cap = cap
        self._buffer = bytearray()
        #: The buffer of a large payload that has begun to arrive, and how many bytes are there.
        self._large = bytearray()
        self._arrived = 0
        #: Number of payloads so far.
        self.taken = 0

    @property
    def partial(self) -> bool:
        """Whether a frame has arrived in part."""
        return bool(self._buffer or self._large)

    def room(self) -> memoryview:
        """Return the unfilled part of a large payload, to read into; empty if none has begun."""
        return memoryview(self._large)[self._arrived :]

    def filled(self, size: int) -> Iterator[bytearray]:
        """Note that ``size`` bytes were read into ``room``; yield the payload if it is complete."""
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
        buffer = self._buffer
        start = 0
        buffer += data
        try:
            while len(buffer) - start >= HEADER:
                size = int.from_bytes(buffer[start : start + HEADER], "big")
                if size > self._cap:
                    raise FrameTooLargeError(
                        f"a frame announces {size} bytes, the cap is {self._cap}"
                    )
                begin = start + HEADER
                end = start + HEADER + size
                if len(buffer) < end:
                    if size >= _LARGE:
                        # From now on it is read into its own buffer, so that there is no second
                        # copy.
                        self._large = bytearray(size)
                        self._arrived = len(buffer) - begin
                        self._large[: self._arrived] = buffer[begin:]
                        start = len(buffer)
                    break
                self.taken += 1
                start = end
                yield bytes(buffer[begin:end])
        finally:
            del buffer[:start]


class Decoder(Generic[T]):
    """Decodes payloads strictly into one union of message types."""

    def __init__(self, union: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(union).decode

    def __call__(self, payload: bytes | bytearray) -> T:
        """Return the message in a payload. Raises ``WireError`` if there is none."""
        check(payload)
        try:
            return self._decode(payload)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as exc:
            # The text may contain names of the sender, whatever their length and characters.
            why = str(exc)[:LONGEST_WHY]
            why = "".join(char if char.isprintable() else "\ufffd" for char in why)
            raise WireError(f"undecodable frame: {why}") from None
