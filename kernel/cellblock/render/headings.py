r"""The headings of a reply to a language model, and a cell's text beneath one, as it was printed.

A reply has parts. Each begins with one of the host's headings, at the beginning of a line; what a
cell printed stands beneath its heading, character for character. A line of it that a reader would
take for a heading is marked with a backslash, and so is such a line that has backslashes before it:
who takes one away from each of these has what was printed. So every unmarked heading is the host's.

``Heading`` is what the host writes and what is recognised, so a new heading is both at once.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

from cellblock.render.text import is_visible, verbatim_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Heading(StrEnum):
    r"""How a part begins. With ``\n`` or ``…`` at its end a heading has its line to itself.

    ``{number}``, ``{rule}`` and ``{name}`` stand for what varies:
    ``Heading.VARIANT.format(number=2)``.
    """

    RAN = "The cell ran"
    FAILED = "The cell failed: "
    NOT_RUN = "The cell was not run"
    STOPPED = "cellblock stopped this cell"
    PROGRAM = "A program that it started "
    FINDING = "line {number}: {rule}: "
    MORE_FINDINGS = "And {number} more finding"
    OPERATOR_ALLOWS = "The operator can allow it, by cellblock policy add FILE 'LINES':"
    CAUSE = "Caused by: "
    CONTEXT = "While handling: "
    LATE = "Printed by what earlier cells left running:\n"
    STDOUT = "stdout:\n"
    STDERR = "stderr:\n"
    RESULT = "result:\n"
    PAGES = "shown:\n"
    DISPLAYED = "Displayed: "
    DISPLAYED_TEXTS = "displayed:\n"
    NOT_DISPLAYED = "Could not be displayed: "
    #: An error that did not end the cell.
    RAISED = "Raised and shown: "
    LEFT_OUT = "Left out: "
    #: A line that the host adds, and a table or another card of it.
    NOTICE = "[cellblock"
    CARD = "cellblock shows:\n"
    COPIED = "Files copied out: "
    NOT_COPIED = "Not copied: "
    #: Other parts, for which there is no room; what is missing of a text, anywhere in a line.
    REST = "…"
    CUT = "… {number} characters left out …"
    #: Over MCP, and in other replies to a model.
    ASSIGNED = "It assigned "
    PICTURES = "Pictures that could not be sent to you: "
    PICTURES_AT = "Its pictures: "
    PICTURES_OF_REPLY = "Of this reply's pictures it has: "
    #: Where to read what a reply left out; and of one that no page has the rest of.
    MORE = "More of it is in pages of the tool output: "
    SHORTENED = "Cut to {number} characters"
    VARIANT = "Variant {number}: "
    VARIANT_KEPT = "Variant kept: "
    PAGE = "Output of cell {number}, "
    STAGED = "Staged, the project is as it was: "
    NOT_STAGED = "No longer staged: "
    NEVER_KEPT = "Never kept: "
    KEPT = "Kept: {number}"
    NOT_KEPT = "nothing was kept: "
    NEW = "The sandbox is new: "
    BRANCHED = "Branch {name} has a copy of the variables"
    PICKED = "The variables are those of {name} now"
    DROPPED = "Dropped {name}. Branches: "
    NO_VARIABLES = "There are no variables."
    NOT_REFUSED = "The last cell was not refused."
    NOTHING_STAGED = "Nothing is staged under this policy."
    NOTHING_WRITTEN = "Cells have written nothing to the project."
    #: Of a cell that crashed, or ended its interpreter.
    LOST = "cellblock lost this cell"
    #: Within a part: what to do instead, and of a cell that was stopped or undone.
    INSTEAD = "Instead: "
    VARIABLES = "Your variables are "
    INTERRUPTED = "It was interrupted: "
    APART = "What it did to variables is "
    UNDONE = "Cell [{number}] is undone."
    ALL_UNDONE = "Cells [{number}]"
    CHECKPOINT = "Back at checkpoint "
    #: With a point behind the name: git says the same without.
    BRANCH = "On branch {name}."
    STAYS = "Files and output stay as they are."
    FILES = "Its files are still there: "
    TO_RAISE = "To raise it"
    REMOVED_FILE = "A removed file counts until "
    REMOVED_FOLDER = "A removed folder counts, and "
    ANEW = "Restart the kernel, which "
    ESTIMATED = "What its processes share could "
    CHARGED = "With memory of the OS kernel's, which "


_MARK: Final = "\\"
_FIELDS: Final = {"{number}": r"\d[\d,]*", "{rule}": "[a-z]+(?:-[a-z]+)+", "{name}": r"\S+"}


def _pattern(heading: Heading) -> str:
    pattern = re.escape("".join(heading.split()).casefold())
    for field, varies in _FIELDS.items():
        pattern = pattern.replace(re.escape(field), varies)
    if heading is Heading.CUT:
        return f".*{pattern}"
    return pattern + r"\Z" * heading.endswith(("\n", "…"))


_HEADING: Final = re.compile("|".join(map(_pattern, Heading)))


def reads_as_heading(line: str) -> bool:
    """Return whether a reader would take a line for a heading, or for a marked one.

    Only what draws something is compared: fonts differ in which characters draw a blank and which
    draw nothing at all. Letters of either case are the same. Letters of other alphabets that look
    alike are different.
    """
    drawn = "".join(line.split())
    if not (drawn.isascii() and drawn.isprintable()):
        drawn = "".join(filter(is_visible, drawn))
    return _HEADING.match(drawn.lstrip("\\").casefold()) is not None


class OwnLines(str):
    """A text of a bundle with lines of the host's own in it, ``hosts``, such as what it left out.

    Nothing that a cell chose may make a sentence of such a line.
    """

    __slots__ = ("hosts",)

    hosts: frozenset[str]

    def __new__(cls, text: str, hosts: Collection[str] = ()) -> Self:
        """Make one of a whole text."""
        made = super().__new__(cls, text)
        made.hosts = frozenset(hosts)
        return made


def own_lines(data: Mapping[str, Any]) -> frozenset[str]:
    """Return the lines of the host's in the texts of a bundle."""
    return frozenset().union(*(text.hosts for text in data.values() if isinstance(text, OwnLines)))


def beneath(text: str, hosts: Collection[str] = ()) -> str:
    """Return a cell's text as it stands beneath a heading: no line of it reads as one.

    Whatever ends a line to some reader is a newline then. The text has no terminal sequences, and
    what reorders it or draws nothing is spelled out. ``hosts`` are lines in it that are the host's.
    """
    return verbatim_lines(
        "\n".join(
            f"{_MARK}{line}" if line not in hosts and reads_as_heading(line) else line
            for line in text.splitlines()
        )
    )
