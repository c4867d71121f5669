"""Code as language models write it."""

from __future__ import annotations

import re
from typing import Final

from cellblock.analysis.transform import CHARACTERS

#: The line that begins a block of code in Markdown (CommonMark, "Fenced code blocks").
_OPENING: Final = re.compile(
    r"(`{3,}+|~{3,}+)[ \t]*+(?:python3?|py|ipython3?)?[ \t]*+", re.IGNORECASE
)


def without_fence(code: str) -> str:
    """Return the code of a Markdown block of Python, and any other text as it is.

    Call it where a model's answer is run: models are taught to write code between fences. The
    block stands alone in the text. Neither of its fences is Python. Code that is longer than any
    cell may be is not looked at: it is refused as it is.
    """
    if len(code) > CHARACTERS:
        return code
    first, _, rest = code.strip().partition("\n")
    opening = _OPENING.fullmatch(first)
    if opening is None or not rest.endswith(opening[1]):
        return code
    return rest.removesuffix(opening[1]).removesuffix("\n")
