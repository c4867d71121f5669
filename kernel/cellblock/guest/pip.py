"""``pip install`` in a cell: a line where all of it is installed, else what to do instead.

Notebooks install what they need in their first cell, and cells can install nothing. Whatever way a
cell spells it, what is installed as asked gets one line, as pip's own; for the rest there is a
sentence instead of pip's errors.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIP: Final = (
    r"\s*(?:(?:/usr/bin/env\s+)?['\"]?[^\s'\"]*python[\d.]*['\"]?\s+-m\s+|uv\s+)?"
    r"(?:[^\s'\"]*/)?pip[\d.]*\s+"
)
#: One command of a shell escape, with what it sends elsewhere; no list of commands. A version that
#: is not quoted (``numpy>=2``) is one: the shell would write to a file of that name.
_PIP_INSTALL: Final = re.compile(
    rf"{_PIP}install\b"
    r"(?P<arguments>(?:[^;|&<>`$'\"]|(?<=[\w\]])[<>]=?(?=\d)|'[^']*'|\"[^\"`$]*\")*?)"
    r"(?P<elsewhere>(?:\s*[12]?>+\s*(?:&1|/dev/null)\s*)*)"
)
#: What has pip list all folders of ``sys.path``: one that it may not list ends it.
_PIP_LIST: Final = re.compile(rf"{_PIP}(?:check|freeze|list|show)\b")
#: Options of pip's that take a value.
_WITH_VALUE: Final = frozenset(
    "-c -i -f -t --constraint --extra-index-url --find-links --index-url --no-binary --only-binary "
    "--prefix --progress-bar --python-version --platform --root --target --timeout --trusted-host "
    "--upgrade-strategy".split()
)
_REQUIREMENT_FILE: Final = re.compile(r"(?:-r|--requirement)(?:=?(?P<path>.+))?")
_QUIET: Final = re.compile(r"-q+|--quiet")
_EDITABLE: Final = ("-e", "--editable")
#: Of a file of requirements.
_MOST_REQUIREMENTS: Final = 100_000


class Answer(NamedTuple):
    """What is said in place of running a command, and whether it did what it was to do."""

    text: str
    success: bool


def answer_pip(command: str) -> Answer | None:
    """Return what to say to a command of a shell escape; None to all but some of pip's."""
    if _PIP_LIST.match(command) and (closed := [path for path in sys.path if _is_closed(path)]):
        names = ", ".join(map(json.dumps, closed))
        text = (
            f"pip fails here: it lists {names}, where a package is installed from, and cells can't."
            f" In the policy:\n    add.filesystem_read_roots = [{names}]\n"
        )
        return Answer(text, success=False)
    found = _PIP_INSTALL.fullmatch(command.rstrip())
    if found is None:
        return None
    try:
        words = shlex.split(found["arguments"], comments=True)
        wanted = list(_requirements(words))
    except (OSError, ValueError):
        return None  # pip says what is wrong with it
    if not wanted:
        return None
    installed = {text: _installed(text) for text in wanted}
    missing = [text for text, found in installed.items() if found is None]
    if not missing:
        there = ", ".join(filter(None, installed.values())) or "nothing is asked for here"
        silent = re.search(r"(?<!2)>", found["elsewhere"]) or any(map(_QUIET.fullmatch, words))
        return Answer("" if silent else f"Requirement already satisfied: {there}\n", success=True)
    names, allowed = shlex.join(missing), ", ".join(map(json.dumps, missing))
    text = (
        f"Cells can't install packages, and this is not installed as asked: {', '.join(missing)}\n"
        f"In a terminal: {shlex.quote(sys.executable)} -m pip install {names}\n"
        f"Or have the host install it, by ops.install({allowed}) in a cell and in the policy:\n"
        f'    ops.install = {{ index = "https://pypi.org/simple", allow = [{allowed}] }}\n'
    )
    return Answer(text, success=False)


def answer_in_script(script: str) -> str:
    """Return a script of a shell in which the lines that ``answer_pip`` answers say that instead.

    A script with a here-document stays as it is: a line may be text there.
    """
    if "pip" not in script or "<<" in script:
        return script
    lines, continued = list[str](), False
    for line in script.split("\n"):
        said = None if continued or line.endswith("\\") else answer_pip(line)
        continued = line.endswith("\\")
        if said is not None:
            end = "" if said.success else " >&2; false"
            line = f"printf %s {shlex.quote(said.text)}{end}"  # noqa: PLW2901 - what stands for it
        lines.append(line)
    return "\n".join(lines)


_SHELLS: Final = ("bash", "sh", "zsh", "dash")


def patch_scripts(module: Any) -> None:
    """Have ``%%bash`` and its like, of IPython's ``module``, answer pip as ``!`` does."""
    original = module.ScriptMagics.shebang

    @functools.wraps(original)
    def shebang(self: Any, line: str, cell: str) -> Any:
        program = line.split(maxsplit=1)[:1]
        is_shell = bool(program) and os.path.basename(program[0]) in _SHELLS
        return original(self, line, answer_in_script(cell) if is_shell else cell)

    module.ScriptMagics.shebang = shebang


def _is_closed(folder: str) -> bool:
    try:
        os.scandir(folder or ".").close()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _requirements(words: list[str]) -> Iterator[str]:
    at = iter(words)
    for word in at:
        if file := _REQUIREMENT_FILE.fullmatch(word):
            yield from _requirements_of_file(file["path"] or next(at, ""))
        elif word in _EDITABLE:
            yield next(at, "")
        elif word in _WITH_VALUE:
            next(at, None)
        elif not word.startswith("-"):
            yield word


def _requirements_of_file(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        lines = file.read(_MOST_REQUIREMENTS).splitlines()
    for line in lines:
        text = re.sub(r"(^|\s+)#.*", "", line).strip()
        if text and not text.startswith("-"):
            yield text


def _installed(text: str) -> str | None:
    """Return name and version of what a requirement asks for, None if that is not installed.

    Empty for a requirement that is none here, by its marker.
    """
    # A tenth of what a zygote imports, for one kind of cell.
    from importlib import metadata  # noqa: PLC0415 - as said

    from packaging import markers, requirements  # noqa: PLC0415 - as said

    not_there = metadata.PackageNotFoundError
    try:
        wanted = requirements.Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate():
            return ""
        version = metadata.version(wanted.name)
    except (requirements.InvalidRequirement, markers.UndefinedEnvironmentName, not_there):
        return None
    if wanted.url or not wanted.specifier.contains(version, prereleases=True):
        return None
    return f"{wanted.name} {version}"
