"""``pip install`` in a cell: quiet where all of it is installed, else what to do instead.

Notebooks install what they need in their first cell, and cells can install nothing. What is
installed as asked needs no word; for the rest there is one sentence instead of pip's errors.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Final

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator

#: One command of a shell escape, with what it sends elsewhere; no list of commands.
_INSTALL: Final = re.compile(
    r"\s*(?:\S*python[\d.]*['\"]?\s+-m\s+)?pip[\d.]*\s+install\b"
    r"(?P<arguments>(?:[^;|&<>`$'\"]|'[^']*'|\"[^\"`$]*\")*)(?:\s*[12]?>+\s*(?:&1|/dev/null)\s*)*"
)
#: Options of pip's that take a value.
_WITH_VALUE: Final = frozenset(
    "-c -e -f -i -r -t --constraint --editable --extra-index-url --find-links --index-url "
    "--no-binary --only-binary --prefix --progress-bar --requirement --root --target "
    "--trusted-host --upgrade-strategy".split()
)
_FILES: Final = ("-r", "--requirement")
#: Of a file of requirements.
_MOST_CHARACTERS: Final = 100_000


def answer(command: str) -> str | None:
    """Return what to say to ``pip install …``; empty where it is installed, None to any other."""
    found = _INSTALL.fullmatch(command.rstrip())
    if found is None:
        return None
    try:
        wanted = list(_requirements(shlex.split(found["arguments"], comments=True)))
    except (OSError, ValueError):
        return None  # pip says what is wrong with it
    missing = [text for text in wanted if not _is_installed(text)]
    if not missing:
        return ""
    names, allowed = shlex.join(missing), ", ".join(map(json.dumps, missing))
    return (
        f"Cells can't install packages, and this is not installed as asked: {', '.join(missing)}\n"
        f"In a terminal: {shlex.quote(sys.executable)} -m pip install {names}\n"
        'Or have the host install it: ops.install = { index = "https://pypi.org/simple", allow = '
        f"[{allowed}] }} in the policy file, and then in a cell: ops.install({allowed})\n"
    )


def _requirements(words: list[str]) -> Iterator[str]:
    at = iter(words)
    for word in at:
        if word in _FILES:
            yield from _of_file(next(at, ""))
        elif word in ("-e", "--editable"):
            yield next(at, "")
        elif word in _WITH_VALUE:
            next(at, None)
        elif not word.startswith("-"):
            yield word


def _of_file(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        lines = file.read(_MOST_CHARACTERS).splitlines()
    for line in lines:
        text = re.sub(r"(^|\s+)#.*", "", line).strip()
        if text and not text.startswith("-"):
            yield text


def _is_installed(text: str) -> bool:
    try:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate():
            return True
        version = metadata.version(wanted.name)
    except (InvalidRequirement, UndefinedEnvironmentName, metadata.PackageNotFoundError):
        return False
    return not wanted.url and wanted.specifier.contains(version, prereleases=True)
