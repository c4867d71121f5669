"""Bodies of answers, unpacked within a bound: what a few bytes unpack to can be gigabytes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from cellblock.host.ops.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: zlib's way of saying gzip.
_GZIP: Final = 16 + zlib.MAX_WBITS
#: What may be asked for: there is one unpacker here that can be told how much to make.
ACCEPTED: Final = "gzip"


async def gather(chunks: AsyncIterator[bytes], encoding: str, most: int) -> bytes:
    """Return a whole body. Raises OperationError beyond ``most`` bytes, packed or not."""
    names = [name for one in encoding.lower().split(",") if (name := one.strip())]
    packed = names in (["gzip"], ["x-gzip"])
    if not packed and names not in ([], ["identity"]):
        said = f"its body is packed as {encoding[:40]!r}, which nobody asked for"
        raise OperationError("ProtocolError", said)
    unpacker = _Unpacker(most) if packed else None
    body, taken = bytearray(), 0
    async for chunk in chunks:
        taken += len(chunk)
        body += chunk if unpacker is None else unpacker.feed(chunk)
        if max(taken, len(body)) > most:
            raise _too_large(most)
    if unpacker is not None and taken and not unpacker.whole:
        raise OperationError("ProtocolError", "its packed body ends too early")
    return bytes(body)


def _too_large(most: int) -> OperationError:
    return OperationError("TooLarge", f"its body has more than {most:,} bytes (max_bytes)")


class _Unpacker:
    """Unpacks gzip, which may come in several parts, to at most ``most`` bytes in all."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._part = zlib.decompressobj(_GZIP)

    @property
    def whole(self) -> bool:
        """Whether the last part has come to its end."""
        return self._part.eof

    def feed(self, data: bytes) -> bytes:
        """Return what ``data`` unpacks to. Raises OperationError."""
        made = bytearray()
        while data:
            if self._part.eof:
                self._part = zlib.decompressobj(_GZIP)
            try:
                made += self._part.decompress(data, self._left + 1 - len(made))
            except zlib.error:
                raise OperationError("ProtocolError", "its packed body is damaged") from None
            if len(made) > self._left:
                raise _too_large(self._most)
            data = self._part.unconsumed_tail or self._part.unused_data
        self._left -= len(made)
        return bytes(made)
