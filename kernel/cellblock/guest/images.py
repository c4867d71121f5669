"""Smaller versions of pictures, for language models, whose clients refuse large ones.

Made in the guest: it wrote the file, and is confined already. The host reads no picture (ADR 0156).
"""

from __future__ import annotations

import io
import math
from importlib import import_module
from typing import Any, Final

#: Pixels of the longer side: models see no more of a picture, and scale it down themselves.
_MOST_PIXELS: Final = 1_568
#: Modes of Pillow's that both kinds of file can have.
_MODES: Final = ("L", "RGB")
_MOST_TRIES: Final = 8


def smaller(image: bytes, most: int) -> bytes:
    """Return a picture as a file of ``most`` bytes at most: JPEG stays JPEG, others become PNG.

    Empty where that can't be had. Raises what Pillow does, and ImportError without it.
    """
    pillow: Any = import_module("PIL.Image")
    picture = pillow.open(io.BytesIO(image), formats=("PNG", "JPEG", "GIF", "WEBP"))
    kind = "JPEG" if picture.format == "JPEG" else "PNG"
    if picture.mode not in _MODES:
        picture = picture.convert("RGB" if kind == "JPEG" else "RGBA")
    side = min(_MOST_PIXELS, max(picture.size))
    for _ in range(_MOST_TRIES):
        picture.thumbnail((side, side))
        file = io.BytesIO()
        picture.save(file, kind)
        made = file.getvalue()
        if len(made) <= most:
            return made
        # Bytes grow with the area; a little less, so that the next try is the last.
        side = max(1, int(max(picture.size) * math.sqrt(most / len(made)) * 0.9))
    return b""
