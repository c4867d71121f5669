"""Frames: four bytes of length, big-endian, then that many bytes of msgpack.

``Splitter`` is the pure half: bytes in, payloads out, bounds kept. The sockets are the callers'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from cellblock.errors import FrameTooLargeError, WireError
from cellblock.wire.shape import check

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The largest payload either side accepts: a 20 MB figure passes, a flood does not.
MAX_FRAME = 24 * 2**20
HEADER = 4
#: Payloads from here on are taken out of the buffer before they are passed on.
_LARGE = 1 << 16
#: Characters that are told of why a payload is no message: names in it are the sender's.
MOST_TOLD = 200
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
        #: Payloads so far.
        self.taken = 0

    @property
    def partial(self) -> bool:
        """Whether a frame has begun to arrive and not ended."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield every payload that ``data`` completes."""
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
                    break
                self.taken += 1
                start = end
                if size < _LARGE:
                    yield bytes(buffer[begin:end])
                else:
                    start = 0
                    yield self._cut(begin, end)
        finally:
            del buffer[:start]

    def _cut(self, begin: int, end: int) -> bytes:
        """Take a payload out, so that no second copy of it waits while it is read."""
        with memoryview(self._buffer) as view:
            payload = bytes(view[begin:end])
        del self._buffer[:end]
        return payload


class Decoder(Generic[T]):
    """Strict decoding of payloads into one union of message types."""

    def __init__(self, union: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(union).decode

    def __call__(self, payload: bytes) -> T:
        """Return the message, or raise ``WireError`` for anything that is not one."""
        check(payload)
        try:
            return self._decode(payload)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as exc:
            raise WireError(f"undecodable frame: {_told(exc)}") from None


def _told(exc: Exception) -> str:
    """Return what is wrong, briefly: unknown names stand in it whole, and as they came."""
    start = str(exc)[:MOST_TOLD]
    return "".join(char if char.isprintable() else "\ufffd" for char in start)
