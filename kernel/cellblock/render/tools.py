"""What ``%tools`` shows: what cells may call on the host, its signatures and what it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from cellblock.render import budgets
from cellblock.render import markup as m
from cellblock.render.bundle import JSON_VERSION, TOOLS_JSON, Bundle, count
from cellblock.render.text import COLUMNS, clip, encodable, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    class _Parameter(Protocol):
        @property
        def name(self) -> str: ...
        @property
        def kind(self) -> int: ...
        @property
        def annotation(self) -> str: ...
        @property
        def default(self) -> str | None: ...

    class _Tool(Protocol):
        @property
        def name(self) -> str: ...
        @property
        def parameters(self) -> Sequence[_Parameter]: ...
        @property
        def returns(self) -> str: ...
        @property
        def doc(self) -> str: ...
        @property
        def is_async(self) -> bool: ...
        @property
        def of_host(self) -> bool: ...


_POSITIONAL_ONLY, _REST, _NAMED, _NAMED_REST = 0, 2, 3, 4
_LONGEST: Final = 300
_NONE: Final = "There are no tools: the policy names none, and grants no operation."
_HOW: Final = "They run on the host. name? shows more; what fails raises ToolError."


def tools(known: Sequence[_Tool], spent: Mapping[str, budgets.Spent] | None = None) -> Bundle:
    """Return the list of all tools, and what is left of a session's budgets."""
    if not known:
        return {"text/plain": _NONE}
    title = _title(known)
    notes = [*budgets.budget_lines(spent or {}), _HOW]
    lines = [line for tool in known for line in _plain(tool)]
    return {
        "text/plain": "\n".join([title, *lines, *notes]),
        "text/html": _html(title, known, notes),
        TOOLS_JSON: {
            "version": JSON_VERSION,
            "tools": [
                {
                    "name": tool.name,
                    "signature": encodable(signature(tool)),
                    "doc": encodable(_first_line(tool)),
                }
                for tool in known
            ],
            **budgets.as_json(spent or {}),
        },
    }


def _title(known: Sequence[_Tool]) -> str:
    own = sum(tool.of_host for tool in known)
    whose = {"operator": len(known) - own, "host": own}
    return ", ".join(f"{count(n, 'tool')} of the {who}'s" for who, n in whose.items() if n)


def signature(tool: _Tool) -> str:
    """Return ``async name(city: str, days: int = 3) -> dict``, without async for the sync.

    Nor for the host's own, which are waited for in whichever way a cell can.
    """
    returns = f" -> {tool.returns}" if tool.returns else ""
    start = "async " if tool.is_async and not tool.of_host else ""
    return f"{start}{tool.name}({', '.join(_parameters(tool.parameters))}){returns}"


def _parameters(parameters: Sequence[_Parameter]) -> Iterator[str]:
    before, starred = -1, False
    for one in parameters:
        if before == _POSITIONAL_ONLY != one.kind:
            yield "/"
        if one.kind == _NAMED and not starred:
            yield "*"
        starred = starred or one.kind in (_REST, _NAMED)
        yield _parameter(one)
        before = one.kind
    if before == _POSITIONAL_ONLY:
        yield "/"


def _parameter(one: _Parameter) -> str:
    stars = {_REST: "*", _NAMED_REST: "**"}.get(one.kind, "")
    hint = f": {one.annotation}" if one.annotation else ""
    equals = " = " if hint else "="
    return f"{stars}{one.name}{hint}{'' if one.default is None else equals + one.default}"


def _first_line(tool: _Tool) -> str:
    return tool.doc.strip().partition("\n")[0][:_LONGEST]


def _plain(tool: _Tool) -> Iterator[str]:
    yield from wrap(visible(signature(tool)), indent="  ", hanging="      ", columns=COLUMNS)
    if line := _first_line(tool):
        yield f"      {clip(visible(line), COLUMNS - 6)}"


def _html(title: str, known: Sequence[_Tool], notes: Sequence[str]) -> m.Html:
    rows = [
        m.element(
            "div",
            m.code(signature(tool)),
            m.paragraph(_first_line(tool), color=m.MUTED, tight=True),
            style="margin-top:8px",
        )
        for tool in known
    ]
    foot = [m.paragraph(note, color=m.MUTED) for note in notes]
    return m.card(title, *rows, *foot, symbol="ƒ", color=m.GREY, label=title)
