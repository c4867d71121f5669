"""Pictures that a cell showed, as programs hand them to language models."""

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

#: Pictures of one cell that a model gets, and characters of one in base64.
MAX_IMAGES: Final = 4
MAX_IMAGE: Final = 1 << 20
#: Pictures that are named where they are not sent.
_MAX_NAMED: Final = 20
#: How the files begin that models read, and clients take.
_BEGINNINGS: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    "image/gif": re.compile(rb"GIF8[79]a"),
}


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: its type, and the file in base64."""

    data: str
    mime_type: str
    #: Which of a cell's pictures it is, from 1 on.
    number: int = field(default=1, compare=False)

    @property
    def content(self) -> bytes:
        """The file."""
        return base64.b64decode(self.data)


def pictures(result: Result) -> Iterator[Image]:
    """Yield the pictures that a cell showed, in order and as large as they are.

    Their types are what the files begin as: a service refuses a whole conversation over one that
    is something else.
    """
    numbers = itertools.count(1)
    # Displays that share an id have one bundle.
    seen: dict[int, tuple[Display, Image | None]] = {}
    for shown in displays_in_order(result):
        if id(shown.data) not in seen:
            seen[id(shown.data)] = shown, _picture_of(shown.data)
        if (found := seen[id(shown.data)][1]) is not None:
            yield replace(found, number=next(numbers))


def _picture_of(bundle: Mapping[str, Any]) -> Image | None:
    """Return the picture of a bundle, of which others may be the same in other types."""
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
    """Return what a model is told of pictures that were shown and not sent; nothing for none.

    ``names`` are what the pictures are called, in order; ``sent`` the numbers of those it gets.
    ``more`` is how many there are behind these.
    """
    there = frozenset(sent)
    missing = [name for number, name in enumerate(names, 1) if number not in there]
    more += max(0, len(missing) - _MAX_NAMED)
    named = ", ".join([*missing[:_MAX_NAMED], *([f"and {more} more"] if more > 0 else [])])
    return f"{Heading.PICTURES}{named}. Show fewer, or smaller ones." if missing else ""


def image_of(file: bytes, most: int, number: int) -> Image | None:
    """Return the smaller version that a guest sent; None for what is no such file."""
    kind = _type_of(file)
    if kind is None or len(file) > most:
        return None
    return Image(base64.b64encode(file).decode(), kind, number)


def _type_of(file: bytes) -> str | None:
    return next((kind for kind, head in _BEGINNINGS.items() if head.match(file)), None)
