"""Reads the files, commands and cells that pages of the documentation show."""

from __future__ import annotations

import re
from dataclasses import dataclass

from support import reading
from support.kernels import ROOT

_BLOCK = re.compile(r"^```(\{denial\} \w+|\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# ([\w.]+\.\w+)\n")
_SAYS = "# >"


@dataclass(frozen=True)
class Cell:
    """A cell on a page, and its output according to the page; None if the page has none."""

    source: str
    says: str | None


def blocks(page: str, *languages: str) -> list[str]:
    """Return the texts of a page's fenced blocks in these languages, in order."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return [body for language, body in _BLOCK.findall(text) if language in languages]


def files(page: str, *languages: str) -> dict[str, str]:
    """Return the files that a page shows, by name: in TOML and Python, or in ``languages``."""
    found = blocks(page, *(languages or ("toml", "python")))
    return {name[1]: body for body in found if (name := _NAME.match(body))}


def cells(page: str) -> list[Cell]:
    """Return a page's cells."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return [
        _cell(body)
        for language, body in _BLOCK.findall(text)
        if language.startswith(("{denial}", "python", "ipython")) and not _NAME.match(body)
    ]


def _cell(body: str) -> Cell:
    lines = body.splitlines()
    source = "\n".join(line for line in lines if not line.startswith(_SAYS))
    said = [line[len(_SAYS) :].removeprefix(" ") for line in lines if line.startswith(_SAYS)]
    return Cell(source, "\n".join(said) if said else None)


def answer(reply: dict, published: list[dict]) -> str:
    """Return a cell's stdout and result, or its error in a line, without the remedy."""
    if reply["status"] == "error":
        error = f"{reply['ename']}: {reply['evalue']}"
        return re.sub(r"\[cellblock: .*\]$", "[cellblock: …]", error)
    return reading.stream(published) + (reading.result(published) or "")
