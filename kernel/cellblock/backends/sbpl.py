r"""SBPL, the language of macOS's sandbox profiles: strings and rules, from values.

A profile is a program in a small Scheme, so a path in it is quoted or it is code. Grammar used::

    rule   = "(" ( "allow" | "deny" ) 1*( SP operation ) *( SP filter ) ")"
    filter = "(" ( "literal" | "subpath" ) SP string ")"
    string = DQUOTE *( "\\" | "\" DQUOTE | any character but control characters ) DQUOTE

Source: sandbox-exec(1), the profiles in /System/Library/Sandbox/Profiles; Apple documents no more.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def quoted(path: str) -> str:
    """Return an absolute path as a string of the language.

    Raises ValueError for what has no spelling that is sure to be read back as it is: control
    characters, whose escapes are not documented; what is not UTF-8; and paths that are not
    absolute, or not canonical, which would match nothing.
    """
    if not path.startswith("/"):
        raise ValueError("not an absolute path")
    if {".", ".."} & set(path.split("/")):
        raise ValueError("not a canonical path")
    # Cc: control characters, Cs: bytes that are not UTF-8, as Python carries them.
    if any(unicodedata.category(each) in ("Cc", "Cs") for each in path):
        raise ValueError("a control character, or not UTF-8")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def literals(paths: Iterable[str]) -> tuple[str, ...]:
    """Return filters that match just these. Raises ValueError as ``quoted`` does."""
    return tuple(f"(literal {quoted(path)})" for path in paths)


def trees(paths: Iterable[str]) -> tuple[str, ...]:
    """Return filters that match these and all beneath. Raises ValueError as ``quoted`` does.

    A literal each as well: whether ``subpath`` matches what is a file is not documented.
    """
    return tuple(f"(literal {name}) (subpath {name})" for name in (quoted(path) for path in paths))


def rule(action: str, operations: str, filters: Iterable[str]) -> str:
    """Return a rule, or nothing without filters: one that has none matches everything."""
    lines = tuple(filters)
    if not lines:
        return ""
    return "\n  ".join((f"({action} {operations}", *lines)) + ")"
