"""What a model is told of a cell that showed nothing and ended in an assignment.

A person who runs such a cell looks at the variable next. A model is told its type and shape, which
saves it a cell. They are what ``Sandbox.variables`` lists, so no cell's code is run for it; of a
class that a cell made there is no shape, and nothing is told.
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

#: Characters of a source that is looked at, and of what is told.
_MAX_SOURCE: Final = 20_000
_MAX_TOLD: Final = 200
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_OF_TABLE: Final = 2


def assigned_name(result: Result) -> str:
    """Return the name that a cell assigned last, if it ran and showed nothing; else nothing."""
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
    """Return a sentence on the variable of that name, if its shape is known; else nothing."""
    for one in variables:
        if one.name == name and one.shape:
            told = ", ".join(filter(None, (exact(one.type), shape_words(one))))
            return clip(f"{Heading.ASSIGNED}{name}: {told}", _MAX_TOLD)
    return ""


def variable_line(one: Variable) -> str:
    """Return a variable's name, type, shape and size as a line for a model."""
    size = count(one.size, "byte") if one.size else ""
    told = ", ".join(filter(None, (exact(one.type), shape_words(one), size)))
    return f"{exact(one.name)}: {told}" if told else exact(one.name)


def shape_words(one: Variable) -> str:
    """Return the shape of a variable in words; nothing where it has none."""
    if not one.shape:
        return ""
    sides = one.shape.split(" by ")
    if len(sides) == 1:
        return f"length {sides[0]}"
    if one.type == "DataFrame" and len(sides) == _OF_TABLE:
        return f"{sides[0]} rows {_TIMES} {sides[1]} columns"
    return f" {_TIMES} ".join(sides)
