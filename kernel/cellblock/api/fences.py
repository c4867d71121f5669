"""Python code in a Markdown block, as language models write it."""

from __future__ import annotations

import re
from typing import Final

from cellblock.analysis.transform import CHARACTERS

#: The line that begins a block of code in Markdown (CommonMark, "Fenced code blocks").
_OPENING: Final = re.compile(
    r"(`{3,}+|~{3,}+)[ \t]*+(?:python3?|py|ipython3?)?[ \t]*+", re.IGNORECASE
)


def without_fence(code: str) -> str:
    """Return the code in a Markdown block of Python, or ``code`` unchanged if it is no such block.

    Call it where a model's answer is run, because models often write code between fences. The block
    must be all of the text. No Python program is changed: a line that is a fence is not Python.
    """
    if len(code) > CHARACTERS:
        return code  # longer than any cell may be: it is refused in any case
    first_line, _, rest = code.strip().partition("\n")
    opening = _OPENING.fullmatch(first_line)
    if opening is None or not rest.endswith(opening[1]):
        return code
    return rest.removesuffix(opening[1]).removesuffix("\n")
