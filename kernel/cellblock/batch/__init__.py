"""FRONT: many notebooks and scripts at once. ``check`` judges their source and runs none of it.

What stands in a file is hostile: it is read in a process that has little time and memory, and
nothing of it is printed as it is.
"""

from enum import StrEnum


class Format(StrEnum):
    """What a report is written as; here, since the command line has it before it needs the rest."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"
