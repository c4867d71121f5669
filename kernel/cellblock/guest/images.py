"""Makes pictures smaller for language models, whose clients refuse large ones.

Done in the guest, which made the picture and is confined. The host decodes no picture (ADR 0035).
"""

from __future__ import annotations

import io
import math
from importlib import import_module
from typing import Any, Final

#: Most pixels of the longer side: models themselves scale larger pictures down.
_MOST_PIXELS: Final = 1_568
#: Modes of Pillow that both PNG and JPEG can have.
_MODES: Final = ("L", "RGB")
_MOST_TRIES: Final = 8


def smaller(image: bytes, most: int) -> bytes:
    """Return a picture as a file of at most ``most`` bytes: JPEG stays JPEG, others become PNG.

    Return b"" if no size is small enough. Raises what Pillow raises, and ImportError without it.
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
        data = file.getvalue()
        if len(data) <= most:
            return data
        # Bytes grow with the area. Take a tenth less, so that the next try is likely the last.
        side = max(1, int(max(picture.size) * math.sqrt(most / len(data)) * 0.9))
    return b""
