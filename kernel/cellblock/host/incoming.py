"""What a guest's bytes say: whole messages, and whether a frame that has begun ever ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.errors import WireError
from cellblock.wire import frames
from cellblock.wire.messages import FromGuest, Stream, StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.host.reactor import Reactor

#: Seconds between looks at a frame that is not whole, and looks that it may take. Long, because a
#: thread that sends is held up by one that keeps the interpreter to itself.
FRAME_LOOK, FRAME_LOOKS = 1.0, 8

_STDOUT: Final[StreamName] = "stdout"
#: One for all: it has no state, and takes a fifth of a millisecond to make.
_decode: frames.Decoder[FromGuest] = frames.Decoder(FromGuest)


class Incoming:
    """``lose`` gets the reason to end a guest that does not end its frame."""

    def __init__(self, reactor: Reactor, lose: Callable[[str], None]) -> None:
        self._reactor, self._lose = reactor, lose
        self._splitter = frames.Splitter()
        #: How many frames had ended at the last look, and how many looks there are left.
        self._looks: tuple[int, int] | None = None

    def messages(self, data: bytes) -> Iterator[FromGuest]:
        """Yield what ``data`` completes; text that came in pieces is joined, a flood of it too."""
        name, parts = _STDOUT, list[str]()
        try:
            # No name is kept for a payload: it is as large as what is made of it.
            for message in map(_decode, self._splitter.feed(data)):
                stream = message if isinstance(message, Stream) else None
                if parts and (stream is None or stream.name != name):
                    yield Stream(name=name, text="".join(parts))
                    parts = []
                if stream is None:
                    yield message
                else:
                    name = stream.name
                    parts.append(stream.text)
        except WireError:
            if parts:
                yield Stream(name=name, text="".join(parts))
            raise
        if parts:
            yield Stream(name=name, text="".join(parts))

    def watch(self) -> None:
        """See to it that a frame which is not whole ends, or goes on, in time."""
        if self._splitter.partial and self._looks is None:
            self._look_later((self._splitter.taken, FRAME_LOOKS))

    def unwatch(self) -> None:
        """Wait for no frame's end: the guest is not heard, or is no more."""
        self._looks = None

    def _look_later(self, looks: tuple[int, int]) -> None:
        self._looks = looks
        self._reactor.call_later(FRAME_LOOK, lambda: self._look(looks))

    def _look(self, looks: tuple[int, int]) -> None:
        """End a guest whose frame takes too long; looks, not seconds: the host may be slow."""
        if looks is not self._looks:
            return
        taken, left = looks
        if not self._splitter.partial:
            self._looks = None
        elif taken != self._splitter.taken:
            self._look_later((self._splitter.taken, FRAME_LOOKS))
        elif left:
            self._look_later((taken, left - 1))
        else:
            self._lose("protocol violation: a frame that does not end")
