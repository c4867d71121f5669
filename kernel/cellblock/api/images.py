"""The pictures that a cell showed, in the form that language models accept.

``AsyncSandbox.images`` picks and shrinks them; the MCP server and the integrations send them, and
tell the model by ``not_sent`` which pictures it doesn't get.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from cellblock.api.results import displays_in_order
from cellblock.render.headings import Heading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cellblock.api.results import Display, Result

#: Pictures of one cell that a model gets.
MAX_IMAGES: Final = 4
#: Characters of a picture in base64.
MAX_IMAGE: Final = 1 << 20
#: Names in the list of pictures that are not sent.
_MAX_NAMED: Final = 20
#: The types that models and MCP clients accept, with the first bytes of their files.
_BEGINNINGS: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    "image/gif": re.compile(rb"GIF8[79]a"),
}


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: its mime type, and the file in base64 (``data``)."""

    data: str
    mime_type: str
    #: The picture's place among the cell's pictures, from 1.
    number: int = field(default=1, compare=False)

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return base64.b64decode(self.data)


def pictures(result: Result) -> Iterator[Image]:
    """Yield all pictures that a cell showed, in order and in their original size.

    The type of a picture is read from its first bytes, because a model's service refuses the whole
    conversation if a picture is not of the type that it is declared as.
    """
    numbers = itertools.count(1)
    # Displays with the same id share a bundle, which is decoded only once. The display is kept too,
    # so that the bundle's identity is not used again.
    decoded: dict[int, tuple[Display, Image | None]] = {}
    for display in displays_in_order(result):
        if id(display.data) not in decoded:
            decoded[id(display.data)] = display, _picture_of(display.data)
        if (picture := decoded[id(display.data)][1]) is not None:
            yield replace(picture, number=next(numbers))


def _picture_of(bundle: Mapping[str, Any]) -> Image | None:
    """Return the first valid picture of a bundle: the others are the same in other types."""
    for name in (name for name in _BEGINNINGS if name in bundle):
        data = "".join(str(bundle[name]).split())
        try:
            kind = _type_of(base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError):
            continue
        if kind is not None:
            return Image(data, kind)
    return None


def not_sent(names: Sequence[str], sent: Iterable[int], *, more: int = 0) -> str:
    """Return a sentence for a model on the pictures that it doesn't get, or "" if it gets all.

    ``names`` are the names of the pictures that a cell showed, in order. ``sent`` are the numbers,
    from 1, of the pictures that the model gets. ``more`` is the number of further pictures, which
    have no names here.
    """
    sent_numbers = frozenset(sent)
    missing = [name for number, name in enumerate(names, 1) if number not in sent_numbers]
    named = missing[:_MAX_NAMED]
    more += len(missing) - len(named)
    if more:
        named.append(f"and {more} more" if named else f"{more} more")
    return f"{Heading.PICTURES}{', '.join(named)}. Show fewer, or smaller ones." if named else ""


def image_of(file: bytes, most: int, number: int) -> Image | None:
    """Return the picture in a file that a guest made, or None if it is no picture or too large.

    ``most`` is the largest number of bytes, ``number`` the place of the original in the cell.
    """
    kind = _type_of(file)
    if kind is None or len(file) > most:
        return None
    return Image(base64.b64encode(file).decode(), kind, number)


def _type_of(file: bytes) -> str | None:
    """Return the mime type that a file's first bytes say, or None."""
    return next((kind for kind, head in _BEGINNINGS.items() if head.match(file)), None)
