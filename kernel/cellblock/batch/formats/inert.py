"""Text that neither a terminal nor a CI runner takes for a command.

GitHub's runner acts on a line that begins with ``::`` behind blanks, and on ``##[`` anywhere in one
(``ActionCommand.cs``, ``TryParseV2`` and ``TryParse``); Azure's on ``##vso[``, TeamCity's on
``##teamcity[``.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from cellblock.render.text import visible

#: Stands where a character of a command was.
_INSTEAD: Final = "\N{REPLACEMENT CHARACTER}"
_ANYWHERE: Final = re.compile(r"##(?=\w*\[)")
_AT_START: Final = re.compile(r"^(\s*):(?=:)")


def inert(text: str) -> str:
    """Return text of visible lines with one character of each command replaced.

    As many columns as before, so that what stands below a character stays there.
    """
    return "\n".join(_line(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """Return any text as one visible line that commands nothing."""
    return _line(visible(text))


def json_text(value: Any) -> str:
    """Return JSON in ASCII, indented. What commands is spelled by its number."""
    return json.dumps(value, indent=2).replace("##", "#\\u0023") + "\n"


def _line(line: str) -> str:
    return _AT_START.sub(rf"\1{_INSTEAD}", _ANYWHERE.sub(f"#{_INSTEAD}", line))
