"""``pip install`` in a cell: answered without running pip, which would fail.

Many notebooks install what they need in their first cell, but cells can't install packages. If all
requirements are met, the answer is one line like pip's own. Otherwise it says what to do instead of
showing pip's errors. Covers ``!pip``, ``!!pip``, ``%pip`` and lines of ``%%bash``.
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
#: A single command of a shell escape and its redirections; lists of commands don't match. An
#: unquoted version (``numpy>=2``) is taken for a version, though a shell would write to a file.
_PIP_INSTALL: Final = re.compile(
    rf"{_PIP}install\b"
    r"(?P<arguments>(?:[^;|&<>`$'\"]|(?<=[\w\]])[<>]=?(?=\d)|'[^']*'|\"[^\"`$]*\")*?)"
    r"(?P<elsewhere>(?:\s*[12]?>+\s*(?:&1|/dev/null)\s*)*)"
)
#: Commands for which pip lists all folders of ``sys.path``. It fails at one that it may not list.
_PIP_LIST: Final = re.compile(rf"{_PIP}(?:check|freeze|list|show)\b")
#: Options of pip that take a value.
_WITH_VALUE: Final = frozenset(
    "-c -i -f -t --constraint --extra-index-url --find-links --index-url --no-binary --only-binary "
    "--prefix --progress-bar --python-version --platform --root --target --timeout --trusted-host "
    "--upgrade-strategy".split()
)
_REQUIREMENT_FILE: Final = re.compile(r"(?:-r|--requirement)(?:=?(?P<path>.+))?")
_QUIET: Final = re.compile(r"-q+|--quiet")
_EDITABLE: Final = ("-e", "--editable")
#: Most characters of a requirements file that are read.
_MOST_REQUIREMENTS: Final = 100_000


class Answer(NamedTuple):
    """The text that replaces the command's output, and whether the command counts as successful."""

    text: str
    success: bool


def answer_pip(command: str) -> Answer | None:
    """Return the answer to a command of a shell escape, or None if the command must be run."""
    if _PIP_LIST.match(command) and (closed := [path for path in sys.path if _is_closed(path)]):
        names = ", ".join(map(json.dumps, closed))
        text = (
            f"pip fails here: it lists {names}, where a package is installed from, and cells can't."
            f" In the policy:\n    add.filesystem_read_roots = [{names}]\n"
        )
        return Answer(text, success=False)
    match = _PIP_INSTALL.fullmatch(command.rstrip())
    if match is None:
        return None
    try:
        words = shlex.split(match["arguments"], comments=True)
        required = list(_requirements(words))
    except (OSError, ValueError):
        return None  # pip itself says what is wrong
    if not required:
        return None
    installed = {text: _installed(text) for text in required}
    missing = [text for text, match in installed.items() if match is None]
    if not missing:
        have = ", ".join(filter(None, installed.values())) or "nothing is asked for here"
        silent = re.search(r"(?<!2)>", match["elsewhere"]) or any(map(_QUIET.fullmatch, words))
        return Answer("" if silent else f"Requirement already satisfied: {have}\n", success=True)
    names = shlex.join(missing)
    allowed = ", ".join(map(json.dumps, missing))
    text = (
        f"Cells can't install packages, and this is not installed as asked: {', '.join(missing)}\n"
        f"In a terminal: {shlex.quote(sys.executable)} -m pip install {names}\n"
        f"Or have the host install it, by ops.install({allowed}) in a cell and in the policy:\n"
        f'    ops.install = {{ index = "https://pypi.org/simple", allow = [{allowed}] }}\n'
    )
    return Answer(text, success=False)


def answer_in_script(script: str) -> str:
    """Return a shell script in which each line that ``answer_pip`` answers prints the answer.

    A script with a here-document is returned unchanged, since a line may be text there.
    """
    if "pip" not in script or "<<" in script:
        return script
    lines = list[str]()
    continued = False
    for line in script.split("\n"):
        answer = None if continued or line.endswith("\\") else answer_pip(line)
        continued = line.endswith("\\")
        if answer is not None:
            end = "" if answer.success else " >&2; false"
            line = f"printf %s {shlex.quote(answer.text)}{end}"  # noqa: PLW2901 - replaces the line
        lines.append(line)
    return "\n".join(lines)


_SHELLS: Final = ("bash", "sh", "zsh", "dash")


def patch_scripts(module: Any) -> None:
    """Make ``%%bash`` and the like answer pip as ``!`` does. ``module`` is IPython's."""
    original = module.ScriptMagics.shebang

    @functools.wraps(original)
    def shebang(self: Any, line: str, cell: str) -> Any:
        program = line.split(maxsplit=1)[:1]
        is_shell = bool(program) and os.path.basename(program[0]) in _SHELLS
        return original(self, line, answer_in_script(cell) if is_shell else cell)

    module.ScriptMagics.shebang = shebang


def _is_closed(folder: str) -> bool:
    """Return whether a folder may not be listed."""
    try:
        os.scandir(folder or ".").close()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _requirements(words: list[str]) -> Iterator[str]:
    """Yield the requirements among pip's arguments. Raises OSError, ValueError."""
    remaining = iter(words)
    for word in remaining:
        if file := _REQUIREMENT_FILE.fullmatch(word):
            yield from _requirements_of_file(file["path"] or next(remaining, ""))
        elif word in _EDITABLE:
            yield next(remaining, "")
        elif word in _WITH_VALUE:
            next(remaining, None)
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
    """Return the name and version of the package that meets a requirement, or None.

    Return "" if the requirement does not apply here, by its marker.
    """
    # Imported here: a tenth of what a zygote imports, for one kind of cell.
    from importlib import metadata  # noqa: PLC0415 - as said

    from packaging import markers, requirements  # noqa: PLC0415 - as said

    not_there = metadata.PackageNotFoundError
    try:
        requirement = requirements.Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate():
            return ""
        version = metadata.version(requirement.name)
    except (requirements.InvalidRequirement, markers.UndefinedEnvironmentName, not_there):
        return None
    if requirement.url or not requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} {version}"
