"""Code as language models write it."""

from __future__ import annotations

import re
from typing import Final

#: A block of code in Markdown, alone in the text (CommonMark, "Fenced code blocks"). Neither line
#: is Python.
_BLOCK: Final = re.compile(
    r"\s*(?P<fence>`{3,}|~{3,})[ \t]*(?:python3?|py|ipython3?)?[ \t]*\n"
    r"(?P<code>.*?)\n?(?P=fence)\s*",
    re.DOTALL | re.IGNORECASE,
)


def without_fence(code: str) -> str:
    """Return the code of a Markdown block of Python, and any other text as it is.

    Call it where a model's answer is run: models are taught to write code between fences.
    """
    found = _BLOCK.fullmatch(code)
    return code if found is None else found["code"]
