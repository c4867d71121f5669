r"""``Heading``: the headings of a reply to a language model; ``beneath``: a cell's text under one.

A reply has parts. Each begins with a heading of the host's, at the beginning of a line. The text
that a cell printed follows its heading, character for character. If the cell printed a line that
reads like a heading, the line gets a backslash. So does such a line with backslashes before it, so
that the printed text can be recovered: remove one backslash from each. Thus every heading without
a backslash is the host's.

The same table serves to write headings and to recognise them, so that no new one is forgotten.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

from cellblock.render.text import is_visible, verbatim_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Heading(StrEnum):
    r"""The first words of a part. If they end with ``\n`` or ``…``, they have a line to themselves.

    ``{number}``, ``{rule}`` and ``{name}`` are filled in: ``Heading.VARIANT.format(number=2)``.
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
    #: An exception that did not end the cell.
    RAISED = "Raised and shown: "
    LEFT_OUT = "Left out: "
    #: A line of the host's own.
    NOTICE = "[cellblock"
    #: A card of the host's.
    CARD = "cellblock shows:\n"
    COPIED = "Files copied out: "
    NOT_COPIED = "Not copied: "
    #: Parts for which there is no room.
    REST = "…"
    #: A gap in a text. May be anywhere in a line.
    CUT = "… {number} characters left out …"
    # Over MCP, and in other replies to a model:
    ASSIGNED = "It assigned "
    PICTURES = "Pictures that could not be sent to you: "
    PICTURES_AT = "Its pictures: "
    PICTURES_OF_REPLY = "Of this reply's pictures it has: "
    #: Where to read what a reply left out.
    MORE = "More of it is in pages of the tool output: "
    #: A reply was cut, and no page has the rest.
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
    # Of a cell that crashed, or ended its interpreter.
    LOST = "cellblock lost this cell"
    # Within a part: what to do instead, and lines about a cell that was stopped or undone.
    INSTEAD = "Instead: "
    VARIABLES = "Your variables are "
    INTERRUPTED = "It was interrupted: "
    APART = "What it did to variables is "
    UNDONE = "Cell [{number}] is undone."
    ALL_UNDONE = "Cells [{number}]"
    CHECKPOINT = "Back at checkpoint "
    #: Ends with a full stop, unlike the same line of git's.
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
    """Return a pattern of a line that reads like this heading, without blanks, in lower case."""
    pattern = re.escape("".join(heading.split()).casefold())
    for field, varies in _FIELDS.items():
        pattern = pattern.replace(re.escape(field), varies)
    if heading is Heading.CUT:
        return f".*{pattern}"
    return pattern + r"\Z" * heading.endswith(("\n", "…"))


_HEADING: Final = re.compile("|".join(map(_pattern, Heading)))


def reads_as_heading(line: str) -> bool:
    """Return whether a line reads like a heading, or like one marked with backslashes.

    Only characters that draw something are compared, since fonts differ in which of the others draw
    a blank. Case does not matter. Letters of other alphabets count as different even if they look
    alike.
    """
    drawn = "".join(line.split())
    if not (drawn.isascii() and drawn.isprintable()):
        drawn = "".join(filter(is_visible, drawn))
    return _HEADING.match(drawn.lstrip("\\").casefold()) is not None


class OwnLines(str):
    """A text in a bundle with lines of the host's own (``hosts``), such as a note of a gap.

    These are not marked beneath a heading. So no text that a cell chose may be part of such a line,
    except names that can't read as a sentence.
    """

    __slots__ = ("hosts",)

    hosts: frozenset[str]

    def __new__(cls, text: str, hosts: Collection[str] = ()) -> Self:
        """Make one from the whole text and the lines in it that are the host's."""
        lines = super().__new__(cls, text)
        lines.hosts = frozenset(hosts)
        return lines


def own_lines(data: Mapping[str, Any]) -> frozenset[str]:
    """Return the host's own lines in all texts of a bundle."""
    return frozenset().union(*(text.hosts for text in data.values() if isinstance(text, OwnLines)))


def beneath(text: str, hosts: Collection[str] = ()) -> str:
    """Return a cell's text to stand beneath a heading; mark its lines that read like a heading.

    ``text`` has no terminal sequences. Each character that ends a line for some reader becomes a
    newline; characters that reorder text or draw nothing are spelled out. ``hosts`` are lines of
    the text that the host wrote, which are not marked.
    """
    return verbatim_lines(
        "\n".join(
            f"{_MARK}{line}" if line not in hosts and reads_as_heading(line) else line
            for line in text.splitlines()
        )
    )
