"""Bytes that a widget carries: images, sound and film, each checked for what it says it is.

A browser makes a document of its own of such bytes when its user asks for it, in the page's
origin, hence drawings are cleaned. It follows play lists wherever they lead, hence the first
bytes decide about sound and film and not what the widget says.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cellblock.host.output import names
from cellblock.host.output.refusal import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Formats that a decoder draws and that nothing else is made of.
RASTER: Final = frozenset(("apng", "bmp", "gif", "jpeg", "jpg", "png", "webp"))
_DRAWING: Final = "svg+xml"
_URL: Final = "url"
_SOUND_AND_FILM: Final = frozenset(
    ("aac", "flac", "m4a", "mp3", "mp4", "mpeg", "ogg", "wav", "webm", "x-wav")
)
#: MP4, Matroska, Ogg, WAVE, FLAC, MP3 with and without a tag, AAC.
_CONTAINER: Final = re.compile(
    rb"....ftyp|\x1a\x45\xdf\xa3|OggS|RIFF....WAVE|fLaC|ID3|\xff[\xe2-\xe7\xf1-\xff]", re.DOTALL
)


def _image(said: str, data: bytes) -> bytes:
    if said in RASTER:
        return data
    if said == _DRAWING:
        return _drawing(data) if data else data
    if said == _URL:
        if names.raster(data.decode("ascii", "replace")) is None:
            raise RefusedError("an image at an address is not loaded")
        return data
    raise RefusedError("not an image format that is shown")


def _drawing(data: bytes) -> bytes:
    from cellblock.host.output import svg  # noqa: PLC0415 - as in the gateway

    return svg.clean(data.decode("utf-8", "replace")).encode()


def _playable(said: str, data: bytes) -> bytes:
    if said == _URL:
        raise RefusedError("sound or film at an address is not loaded")
    if said not in _SOUND_AND_FILM or (data and not _CONTAINER.match(data)):
        raise RefusedError("not a format that is played")
    return data


#: By model name: the format it has when it says none, and the check.
MEDIA: Final[dict[str, tuple[str, Callable[[str, bytes], bytes]]]] = {
    "AudioModel": ("mp3", _playable),
    "ImageModel": ("png", _image),
    "VideoModel": ("mp4", _playable),
}


def clean(model: str, said: str, data: bytes) -> bytes:
    """Return what may be shown of ``data`` in format ``said``. Raises ``RefusedError``."""
    return MEDIA[model][1](said, data)


def may_become(before: str, after: str) -> bool:
    """Whether bytes that were let through as ``before`` may be called ``after``."""
    return before == after or {before, after} <= RASTER or {before, after} <= _SOUND_AND_FILM
