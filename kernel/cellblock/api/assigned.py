"""The sentence for a model on the variable that a cell assigned without showing anything.

A person who runs such a cell looks at the variable next. A model gets the variable's type and
shape at once, which saves it a cell. Both come from ``Sandbox.variables``, so no cell's code is run
for them. An object of a class that a cell made has no shape there, and gets no sentence.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from cellblock.api.results import showed_anything
from cellblock.render.cards import count
from cellblock.render.headings import Heading
from cellblock.render.text import clip, exact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.api.results import Result, Variable

#: Characters of a source that is parsed for this.
_MAX_SOURCE: Final = 20_000
#: Characters of the sentence.
_MAX_SENTENCE: Final = 200
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_SIDES_OF_TABLE: Final = 2


def assigned_name(result: Result) -> str:
    """Return the name that a cell's last statement assigned, or "".

    It is "" for a cell that failed, showed anything, or ended in another statement.
    """
    if not result.success or showed_anything(result) or len(result.source) > _MAX_SOURCE:
        return ""
    try:
        body = ast.parse(result.source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a magic, for one
        return ""
    match body[-1:]:
        case [ast.Assign(targets=[ast.Name(id=name)])]:
            return name
        case [ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())]:
            return name
    return ""


def assigned_text(name: str, variables: Iterable[Variable]) -> str:
    """Return a sentence on the variable ``name``, or "" if its shape is not known."""
    for variable in variables:
        if variable.name == name and variable.shape:
            words = ", ".join(filter(None, (exact(variable.type), shape_words(variable))))
            return clip(f"{Heading.ASSIGNED}{name}: {words}", _MAX_SENTENCE)
    return ""


def variable_line(variable: Variable) -> str:
    """Return a variable's name, type, shape and size as a line for a model."""
    size = count(variable.size, "byte") if variable.size else ""
    words = ", ".join(filter(None, (exact(variable.type), shape_words(variable), size)))
    return f"{exact(variable.name)}: {words}" if words else exact(variable.name)


def shape_words(variable: Variable) -> str:
    """Return the shape of a variable in words, or "" if it has none."""
    if not variable.shape:
        return ""
    sides = variable.shape.split(" by ")
    if len(sides) == 1:
        return f"length {sides[0]}"
    if variable.type == "DataFrame" and len(sides) == _SIDES_OF_TABLE:
        return f"{sides[0]} rows {_TIMES} {sides[1]} columns"
    return f" {_TIMES} ".join(sides)
