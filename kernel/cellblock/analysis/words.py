"""A command's words, as far as they are the same to any shell: for what is shown, never to run."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: A word as a shell parts a line; else one sign of an operator, or a quote without its other one.
_WORD = re.compile(r"""(?:[^\s'"\\<>|;&()]|'[^']*+'|"[^"\\]*+"|\\.)++|\S""")
_ENDS = frozenset("\"#&'();<>\\|")
#: Short options that take no value; of any other, the next word may be one.
_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "cat": "AETbenstuv",
        "conda": "qvy",
        "curl": "46LNORSVfgiknpqsv",
        "dir": "1ABCFGHLNQRSUXZabcdfghiklmnopqrstuvx",
        "head": "qvz",
        "less": "EFGIMNQRSUWXefgimnqrsuw",
        "ll": "1ABCFGHLNQRSUXZabcdfghiklmnopqrstuvx",
        "load": "ny",
        "ls": "1ABCFGHLNQRSUXZabcdfghiklmnopqrstuvx",
        "mamba": "qvy",
        "micromamba": "qvy",
        "more": "cdflpsu",
        "pip": "IUqv",
        "pip3": "IUqv",
        "save": "af",
        "tail": "Ffqvz",
        "uv": "Uqv",
        "wget": "NScnqv",
        "writefile": "a",
    }
)
#: The same of long ones.
_LONG_FLAGS = frozenset(
    {
        "--all",
        "--append",
        "--fail",
        "--force-reinstall",
        "--ignore-installed",
        "--location",
        "--no-cache-dir",
        "--no-deps",
        "--pre",
        "--quiet",
        "--silent",
        "--system",
        "--upgrade",
        "--user",
        "--verbose",
        "--yes",
    }
)


def words(line: str) -> list[str]:
    """Return the words of a line up to its first operator, quoted ones without their quotes."""
    found: list[str] = []
    for word in _WORD.findall(line):
        if word in _ENDS or word[0] == "#":
            if word in "<>" and found and found[-1].isdecimal():  # as 2 in 2>
                found.pop()
            break
        plain = word[0] in "'\"" and word[0] not in word[1:-1] and word[0] == word[-1]
        found.append(word[1:-1] if plain else word)
    return found


def operands(program: str, given: Iterable[str]) -> Iterator[str]:
    """Yield the words of a command that are no options, nor may be the value of one."""
    flags = _FLAGS.get(program, "")
    may_be_value = False
    for word in given:
        if word.startswith("-"):
            may_be_value = not _takes_none(word, flags)
        elif may_be_value:
            may_be_value = False
        else:
            yield word


def _takes_none(option: str, flags: str) -> bool:
    """Say whether an option takes no value from the next word, as far as is known."""
    if option.startswith("--"):
        return option in _LONG_FLAGS or "=" in option
    # A number says itself what it is the value of, as in -n5.
    return set(option[1:]) <= set(flags) or bool(re.fullmatch(r"-[a-zA-Z]?\d+", option))
