"""The tables that magics show, a section for each, and the card of the files that a cell left.

The sections are ``%tools``, ``%template``, ``%usage``, ``%ports``, ``%output``, ``%branch`` and
``%changes``. ``%policy`` is in ``policy_card``. ``host.cell.status`` collects what they show.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from cellblock.render import cards as c
from cellblock.render.cards import (
    ARTIFACTS_JSON,
    CHANGES_JSON,
    PORTS_JSON,
    TEMPLATES_JSON,
    TOOLS_JSON,
    USAGE_JSON,
    Bundle,
    count,
    duration,
    size,
)
from cellblock.render.headings import Heading
from cellblock.render.text import (
    COLUMNS,
    broken,
    clip,
    verbatim_lines,
    visible,
    visible_lines,
    width,
    wrap,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cellblock.analysis.admission import Template
    from cellblock.wire.messages import Parameter, Tool


def _entry(name: str, text: str) -> c.Html:
    """Return an entry of a list: a name in the code font, and a line about it."""
    below = c.paragraph(text, color=c.MUTED, tight=True)
    return c.element("div", c.code(name), below, style="margin-top:8px")


# --- what is left of a session's budgets --------------------------------------------------------


class ModelBudget(NamedTuple):
    """The calls of language models in a session, and their tokens.

    ``tokens`` are those reported so far, and the most that calls under way may take.
    """

    calls: int
    max_calls: int
    tokens: int
    max_tokens: int

    def __str__(self) -> str:
        calls = _budget_left(self.calls, self.max_calls, "calls")
        return f"{calls} and {_budget_left(self.tokens, self.max_tokens, 'tokens')} are left"


class WriteBudget(NamedTuple):
    """The bytes that operations have written for cells in a session."""

    bytes: int
    max_bytes: int

    def __str__(self) -> str:
        return f"{_budget_left(self.bytes, self.max_bytes, 'bytes')} are left"


Budget = ModelBudget | WriteBudget


def _budget_left(used: int, limit: int, unit: str) -> str:
    return f"{max(limit - used, 0):,} of {limit:,} {unit}"


def _budget_lines(budgets: Mapping[str, Budget] | None) -> list[str]:
    return [f"{name}: {budget} for this session." for name, budget in (budgets or {}).items()]


def _budget_json(budgets: Mapping[str, Budget] | None) -> dict[str, Any]:
    return (
        {"budgets": {name: budget._asdict() for name, budget in budgets.items()}} if budgets else {}
    )


# --- %tools: the tools and operations that cells may call ---------------------------------------

#: Values of ``inspect.Parameter.kind``.
_POSITIONAL_ONLY = 0
_VAR_POSITIONAL = 2
_KEYWORD_ONLY = 3
_VAR_KEYWORD = 4
_LONGEST_LINE: Final = 300
_NO_TOOLS: Final = "There are no tools: the policy names none, and grants no operation."
_HOW_TOOLS: Final = "They run on the host. name? shows more; a call that fails raises ToolError."


def tools(known: Sequence[Tool], budgets: Mapping[str, Budget] | None = None) -> Bundle:
    """Return the list of all tools and operations, and what is left of the session's budgets."""
    if not known:
        return {"text/plain": _NO_TOOLS}
    of_host = sum(tool.of_host for tool in known)
    owners = {"policy": len(known) - of_host, "host": of_host}
    title = ", ".join(
        f"{count(number, 'tool')} of the {owner}'s" for owner, number in owners.items() if number
    )
    notes = [*_budget_lines(budgets), _HOW_TOOLS]
    rows = [
        (tool.name, signature(tool), tool.doc.strip().partition("\n")[0][:_LONGEST_LINE])
        for tool in known
    ]
    lines = [title]
    for _, text, doc in rows:
        lines += wrap(visible(text), indent="  ", hanging="      ")
        if doc:
            lines.append(f"      {clip(visible(doc), COLUMNS - 6)}")
    return c.make_card(
        title,
        *(_entry(text, doc) for _, text, doc in rows),
        *(c.paragraph(note, color=c.MUTED) for note in notes),
        lines=[*lines, *notes],
        symbol="ƒ",
        color=c.GREY,
        mime=TOOLS_JSON,
        data={
            "tools": [{"name": name, "signature": text, "doc": doc} for name, text, doc in rows],
            **_budget_json(budgets),
        },
    )


def signature(tool: Tool) -> str:
    """Return a tool's signature, as in ``async name(city: str, days: int = 3) -> dict``.

    The host's own operations have no ``async``, since a cell may call them either way.
    """
    returns = f" -> {tool.returns}" if tool.returns else ""
    start = "async " if tool.is_async and not tool.of_host else ""
    return f"{start}{tool.name}({', '.join(_parameters(tool.parameters))}){returns}"


def _parameters(parameters: Sequence[Parameter]) -> Iterator[str]:
    """Yield a signature's parameters, with ``/`` and ``*`` where Python needs them."""
    kind_before = -1
    starred = False
    for param in parameters:
        if kind_before == _POSITIONAL_ONLY != param.kind:
            yield "/"
        if param.kind == _KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or param.kind in (_VAR_POSITIONAL, _KEYWORD_ONLY)
        stars = {_VAR_POSITIONAL: "*", _VAR_KEYWORD: "**"}.get(param.kind, "")
        hint = f": {param.annotation}" if param.annotation else ""
        equals = " = " if hint else "="
        yield f"{stars}{param.name}{hint}{'' if param.default is None else equals + param.default}"
        kind_before = param.kind
    if kind_before == _POSITIONAL_ONLY:
        yield "/"


# --- %template: the shipped templates, or one template with the schema of its state -------------

_NO_TEMPLATES: Final = "There are no templates: the policy's folders are empty."
_HOW_TEMPLATES: Final = "A cell runs one: %%template NAME, and below it the state as JSON."
_MORE_TEMPLATES: Final = "%template NAME shows the schema of its state."
#: Templates that are listed.
MOST: Final = 100
#: Characters of a schema that are shown.
MOST_SCHEMA: Final = 20_000


def templates(known: Mapping[str, Template], name: str = "") -> Bundle:
    """Return the list of all templates, or the one called ``name`` with its schema."""
    if not known:
        return {"text/plain": _NO_TEMPLATES}
    data: dict[str, Any] = {}
    if name in known:
        listed = [known[name]]
        title = f"Template {listed[0].name}"
        doc = listed[0].doc
        schema = json.dumps(listed[0].schema, indent=2, ensure_ascii=False)[:MOST_SCHEMA]
        text = visible_lines(schema)
        style = "margin:8px 0 0;white-space:pre-wrap"
        body = [c.paragraph(doc), c.preformatted(text, style=style)]
        lines = [title, *wrap(doc, indent="  "), text]
        data["schema"] = listed[0].schema
    else:
        listed = [known[template] for template in sorted(known)[:MOST]]
        title = f"{count(len(known), 'template')} shipped"
        if name:
            title = f"No template {clip(visible(name), 40)}: {title}"
        lines = [title]
        for template in listed:
            text = f"{template.name}: {template.doc}" if template.doc else template.name
            lines += wrap(text, indent="  ", hanging=" " * 6)
        lines += [_HOW_TEMPLATES, _MORE_TEMPLATES]
        body = [_entry(template.name, template.doc) for template in listed]
        body.append(c.paragraph(f"{_HOW_TEMPLATES} {_MORE_TEMPLATES}", color=c.MUTED))
    data = {
        "templates": [{"name": template.name, "doc": template.doc} for template in listed],
        **data,
    }
    return c.make_card(
        title, *body, lines=lines, symbol="▤", color=c.GREY, mime=TEMPLATES_JSON, data=data
    )


# --- %usage: the time and memory that each cell of a session took -------------------------------

#: Rows that are shown without an argument.
MOST_ROWS: Final = 50
#: Rows that ``%usage top`` shows.
TOP: Final = 10
_HEADS: Final = ("wall", "cpu", "peak", "out", "read")
_COLUMN: Final = 10
_USAGE_STYLE: Final = "vertical-align:middle;padding:3px 8px;white-space:nowrap"
_USAGE_STYLES: Final = (
    *(1 + len(_HEADS)) * [f"text-align:right;{_USAGE_STYLE};width:1%"],
    "text-align:left;vertical-align:middle;padding:3px 8px;overflow-wrap:break-word",
)
_HOW_USAGE: Final = "%usage shows all cells, %usage top those that took most, %usage 7 one."
_READ_NOTE: Final = "read: from disk, as the cell's own process says. "


class UsageRow(NamedTuple):
    """The usage of one cell, with its execution count and the first line of its source."""

    number: int
    line: str
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    output_bytes: int
    read_bytes: int


class UsageTotals(NamedTuple):
    """The usage of all cells of a session, including cells that have no row any more."""

    cells: int
    wall_seconds: float
    cpu_seconds: float
    output_bytes: int
    read_bytes: int


def usage(
    rows: Sequence[UsageRow],
    totals: UsageTotals,
    argument: str = "",
    budgets: Mapping[str, Budget] | None = None,
) -> Bundle:
    """Return the table of usage, as ``argument`` says.

    Without an argument it has the last rows, newest last; for "top" the cells that took the longest
    time; for a number the cell with this execution count.
    """
    if not argument:
        chosen_rows = rows[-MOST_ROWS:]
    elif argument == "top":
        chosen_rows = sorted(rows, key=lambda row: row.wall_seconds, reverse=True)[:TOP]
    else:
        chosen_rows = [row for row in rows if str(row.number) == argument]
    if not chosen_rows:
        note = "No cell has ended yet." if not rows else f"No such cell. {_HOW_USAGE}"
        return {"text/plain": note}
    wall = duration(totals.wall_seconds)
    cpu = duration(totals.cpu_seconds)
    title = f"Usage: {count(totals.cells, 'cell')}, {wall} wall, {cpu} cpu"
    notes = _budget_lines(budgets)
    return c.make_card(
        title,
        c.table(("cell", *_HEADS, ""), list(map(_usage_html, chosen_rows)), _USAGE_STYLES),
        *(c.paragraph(note, color=c.MUTED) for note in notes),
        c.paragraph(_READ_NOTE, _HOW_USAGE, color=c.MUTED),
        lines=[
            *wrap(title),
            f"{'cell':>6}" + "".join(f"{name:>{_COLUMN}}" for name in _HEADS),
            *map(_usage_line, chosen_rows),
            *notes,
        ],
        symbol="◔",
        color=c.GREY,
        mime=USAGE_JSON,
        data={
            "totals": totals._asdict(),
            "cells": [row._asdict() for row in chosen_rows],
            **_budget_json(budgets),
        },
    )


def _values(row: UsageRow) -> list[str]:
    """Return a row's values in words, in the order of ``_HEADS``."""
    sizes = (row.peak_memory_bytes, row.output_bytes, row.read_bytes)
    size_texts = (size(value).replace(" bytes", " B") for value in sizes)
    return [duration(row.wall_seconds), duration(row.cpu_seconds), *size_texts]


def _usage_line(row: UsageRow) -> str:
    start = f"{row.number:>6}{''.join(f'{value:>{_COLUMN}}' for value in _values(row))} "
    return start + clip(visible(row.line), max(8, COLUMNS - width(start)))


def _usage_html(row: UsageRow) -> list[str]:
    line = c.element("span", clip(row.line, 60), style=f"font-family:{c.MONO}")
    return [str(row.number), *_values(row), line]


# --- %ports: the ports at which cells' servers can be reached -------------------------------------

_HOW_PORTS: Final = (
    "Each address is for a browser on this machine, and ends with the session. A page from there "
    "is the cell's, not cellblock's: type nothing into it that cells may not know."
)
_PORT_STYLES: Final = 3 * ("text-align:left;vertical-align:middle;padding:3px 8px",)
_LISTENS: Final = "a server listens"
_SILENT: Final = "nothing listens yet"


class PortRow(Protocol):
    """An open port of a session."""

    @property
    def number(self) -> int:
        """The port's number for cells."""

    @property
    def url(self) -> str:
        """The address at which a user's browser reaches it."""

    @property
    def listens(self) -> bool:
        """Whether a cell listens there."""


def no_ports(policy: str) -> Bundle:
    """Return the note for a policy that opens no ports."""
    name = visible(policy)
    return kept_note(
        f"Policy {name} opens no port. To open one, write ports = [8050] into its file."
    )


def ports(rows: Sequence[PortRow], *, opens_any: bool) -> Bundle:
    """Return the table of ports with their addresses; ``opens_any``: the policy opens any port."""
    if not rows:
        note = "No cell listens at a port yet." if opens_any else "No port is open yet: run a cell."
        return kept_note(note)
    listening = sum(row.listens for row in rows)
    title = f"Ports: {count(len(rows), 'port')} open, {listening} with a server"
    lines = [title]
    body = list[list[str]]()
    for row in rows:
        state = _LISTENS if row.listens else _SILENT
        lines.append(f"  {row.number:>5}  {row.url}  {state}")
        link = c.element("a", row.url, href=row.url, target="_blank", rel="noopener noreferrer")
        body.append([str(row.number), link, state])
    return c.make_card(
        title,
        c.table(("port", "address", ""), body, _PORT_STYLES),
        c.paragraph(_HOW_PORTS, color=c.MUTED),
        lines=[*lines, *wrap(_HOW_PORTS)],
        symbol="⇄",
        color=c.GREY,
        mime=PORTS_JSON,
        data={
            "ports": [
                {"number": row.number, "url": row.url, "listens": row.listens} for row in rows
            ]
        },
    )


# --- %output: the list of kept texts, a page of one, or a note -----------------------------------

_KEPT_TITLE: Final = "Output kept on disk"


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A text that is kept on disk (``host.cell.output_log``)."""

    #: The cell's execution count.
    cell: int
    #: "stdout", "stderr" or "display".
    kind: str
    #: Bytes.
    size: int
    #: The line, or a tool's arguments, that show its first page.
    command: str
    #: The text between ``command`` and the number of another page.
    page: str
    #: That only a part is kept, and why; empty for a whole text.
    missing: str

    def __str__(self) -> str:
        missing_note = f" ({self.missing})" if self.missing else ""
        output = f"cell {self.cell}, {self.kind}, {count(self.size, 'byte')}"
        return f"{output}{missing_note}: {self.command}"


def kept_list(rows: Sequence[KeptRow]) -> Bundle:
    """Return the card that lists the kept texts."""
    if not rows:
        explanation = "Output that was left out is kept, up to output_kept_max_bytes."
        return kept_note(f"Nothing is kept. {explanation}")
    body = [c.paragraph(str(row), tight=True) for row in rows]
    return _kept_card(_KEPT_TITLE, *body, lines=[_KEPT_TITLE, *(f"  {row}" for row in rows)])


def kept_page(row: KeptRow, number: int, pages: int, content: str) -> Bundle:
    """Return the card for one page of a text; ``content`` has no terminal sequences."""
    title = f"{Heading.PAGE.format(number=row.cell)}{row.kind}"
    position = f"page {number:,} of {pages:,}"
    if number < pages:
        position += f": {row.command}{row.page}{number + 1}"
    elif row.missing:
        position += f" ({row.missing})"
    text = verbatim_lines(content)
    style = "white-space:pre-wrap;overflow:auto;max-height:32em;margin:8px 0 0"
    body = (c.paragraph(position, tight=True), c.preformatted(text, style=style))
    return _kept_card(title, *body, lines=[title, position, text])


def kept_note(line: str) -> Bundle:
    """Return a card that is a single line."""
    return _kept_card(visible(line), lines=[visible(line)])


def _kept_card(title: str, *body: str, lines: Sequence[str]) -> Bundle:
    return c.make_card(title, *body, lines=lines, symbol="≡", color=c.GREY)


# --- %branch --------------------------------------------------------------------------------------

_HOW_BRANCHES: Final = (
    "%branch NAME goes to a branch, or begins one here; %branch NAME CHECKPOINT begins one there; "
    "%branch -d NAME drops one."
)


def branches(
    current: str, names: Sequence[str], checkpoints: Sequence[str], *, begins: bool
) -> Bundle:
    """Return the list of branches, of which the session is on ``current``, and of checkpoints.

    ``begins``: the cell that shows the list has begun this branch.
    """
    title = f"On branch {current}{', which begins here' * begins}."
    lists = [f"Branches: {', '.join(names)}."]
    lists += [f"Checkpoints: {', '.join(checkpoints)}."] if checkpoints else []
    lines = [piece for line in (title, *lists, _HOW_BRANCHES) for piece in wrap(line)]
    instruction = c.paragraph(_HOW_BRANCHES, color=c.MUTED)
    return _kept_card(title, *map(c.paragraph, lists), instruction, lines=lines)


# --- %changes: the staged changes ---------------------------------------------------------------

#: Files that are listed.
CHANGES: Final = 100
#: Lines of one diff.
DIFF_LINES: Final = 60
#: Characters of all diffs together.
_DIFF_CHARACTERS: Final = 20_000
_IN_A_TERMINAL: Final = "In a terminal, within a week: cellblock changes keep {}"


class HowToKeep(NamedTuple):
    """How staged files are kept, in words for the users of one kind of front."""

    #: The end of the sentence that says, once, that files are staged. If empty, nothing says so.
    first: str
    #: The lines below the list; ``{}`` stands for the session's id.
    listed: str
    #: Why ``%changes keep`` asks nobody; ``{}`` stands for `cellblock changes keep`'s argument.
    refused: str


BY_CELLS: Final = HowToKeep(
    "%changes shows it, %changes keep keeps it",
    f"Keep them: %changes keep, or some: %changes keep PATH\n{_IN_A_TERMINAL}",
    "nobody can be asked here, and keeping is yours to say: `cellblock changes keep {}` in a "
    "terminal",
)
BY_PROGRAM: Final = HowToKeep(
    "%changes shows it, and the program that runs the cells can keep it",
    f"The program that runs the cells can keep them: Sandbox.keep()\n{_IN_A_TERMINAL}",
    "no cell keeps files here: the program that runs the cells can, by Sandbox.keep(), or its user "
    "by `cellblock changes keep {}` in a terminal",
)
BY_RUN: Final = HowToKeep(
    "%changes shows it",
    f"Keep them: cellblock run --changes keep\n{_IN_A_TERMINAL}",
    "nobody is asked here: --changes keep of `cellblock run` keeps files, or `cellblock changes "
    "keep {}` in a terminal",
)
BY_TOOL: Final = HowToKeep(
    "",  # its replies name each file themselves
    "The tool keep asks a person to keep them, all or some",
    "no cell keeps files here: the tool keep asks a person to",
)


class ChangeRow(NamedTuple):
    """A file that is new, changed or deleted."""

    name: str
    kind: str
    #: Bytes now, and before; None if there is no such file.
    size: int | None
    before: int | None
    note: str
    #: The differences; empty if they could not be made in time.
    diff: str
    #: Lines of the differences that are cut or missing.
    cut: int = 0

    @property
    def details(self) -> str:
        """The file's size now and before, and the note."""
        sizes = " ← ".join(
            size(number) for number in (self.size, self.before) if number is not None
        )
        return " · ".join(filter(None, (sizes, self.note)))


def changes(
    rows: Sequence[ChangeRow],
    total: int,
    session: str,
    kept: int | None = None,
    how: HowToKeep = BY_CELLS,
    *,
    asked: bool = False,
) -> Bundle:
    """Return the card of staged changes; ``rows`` are the first of ``total``.

    ``kept`` is how many can be kept, by default all. ``asked``: the card is part of a question
    whether to keep these changes. It then does not say how to keep them, and its plain text has the
    diffs too. A file's row says if its diff is left out or cut.
    """
    kept = total if kept is None else kept
    if not rows:
        return kept_note("No file of the project was changed.")
    title = f"{count(kept, 'file')} written by cells: your project is unchanged until you keep them"
    if not kept:
        title = "Cells wrote no file that can be kept: yours are as they were"
    whole = f"`cellblock changes diff {session}`"
    lines = [title]
    body = []
    room_left = _DIFF_CHARACTERS
    for row in rows:
        name = clip(visible(row.name), COLUMNS)
        details = row.details
        diff = visible_lines(row.diff)
        is_shown = bool(diff) and len(diff) <= room_left
        unshown = ""
        if not is_shown:
            unshown = f" · its lines are not shown: see {whole}"
        elif row.cut:
            unshown = f" · {count(row.cut, 'line')} not shown whole: see {whole}"
        lines.append(f"  {row.kind:8} {name}  {details}{c.plain(unshown) if asked else ''}")
        about = c.element(
            "span", f" {row.kind} · {details}", c.prose(unshown), style=f"color:{c.MUTED}"
        )
        if not is_shown:
            body.append(c.paragraph(c.code(name), about, tight=True))
            continue
        room_left -= len(diff)
        if asked:
            lines += (
                piece
                for line in diff.split("\n")
                for piece in broken(line, "    │ ", "    ┆ ", columns=COLUMNS)
            )
        coloured = (_diff_line(line) for line in diff.split("\n"))
        look = "white-space:pre-wrap;overflow:auto;max-height:20em;margin:4px 0 8px 16px"
        summary = c.element("summary", c.code(name), about, style="margin-top:8px")
        body.append(c.element("details", summary, c.preformatted(*coloured, style=look)))
    if total > len(rows):
        more_note = f"and {total - len(rows):,} more: see {whole}"
        lines.append(f"  {c.plain(more_note)}")
        body.append(c.paragraph(c.prose(more_note), color=c.MUTED))
    remedies = how.listed.format(session).split("\n") if kept and not asked else []
    return c.make_card(
        title,
        *body,
        *map(c.paragraph, remedies),
        lines=[*lines, *(f"  {remedy}" for remedy in remedies)],
        symbol="±",
        color=c.AMBER,
        mime=CHANGES_JSON,
        data={
            "session": "" if asked else session,
            "total": total,
            "changes": [
                {key: getattr(row, key) for key in ("name", "kind", "size", "before", "note")}
                for row in rows
            ],
        },
    )


def _diff_line(line: str) -> c.Html:
    """Return a line of a diff as HTML, in its colour."""
    color = {"+": c.GREEN, "-": c.RED, "@": c.MUTED, "!": c.AMBER}.get(line[:1], "inherit")
    color = c.MUTED if line.startswith(("+++ ", "--- ")) else color
    return c.element("span", f"{line}\n", style=f"color:{color}")


def settled_changes(rows: Sequence[ChangeRow], *, kept: bool) -> Bundle:
    """Return the card for files that were kept, or that were dropped from the staged changes."""
    title = f"Kept {count(len(rows), 'file')}: the project has what the cells wrote"
    if not kept:
        title = f"Dropped {count(len(rows), 'file')}: cells see them until this kernel ends"
    lines = [title]
    body = []
    for row in rows[:CHANGES]:
        name = clip(visible(row.name), COLUMNS)
        details = row.details
        lines.append(f"  {row.kind:8} {name}  {details}")
        muted = c.element("span", f" {row.kind} · {details}", style=f"color:{c.MUTED}")
        body.append(c.paragraph(c.code(name), muted, tight=True))
    if len(rows) > CHANGES:
        lines.append(f"  and {len(rows) - CHANGES:,} more")
        body.append(c.paragraph(f"and {len(rows) - CHANGES:,} more", color=c.MUTED))
    color = c.GREEN if kept else c.GREY
    return c.make_card(title, *body, lines=lines, symbol="✓" if kept else "±", color=color)


# --- files that a cell left: links to the copies, and files that were not copied ----------------

#: Columns of a file's path.
_FILE_COLUMNS: Final = 60
#: Files that are listed.
_FILES: Final = 50
_FILE_JSON: Final = ("name", "path", "size_bytes", "content_type")


class File(NamedTuple):
    """A file that was copied out. The path is relative to the project if it is below that."""

    name: str
    path: str
    size_bytes: int
    content_type: str
    #: Whether ``path`` is relative, so that a front end can follow it.
    linked: bool


class Left(NamedTuple):
    """A file that was not copied, and why."""

    name: str
    why: str


def artifacts(files: Sequence[File], left: Sequence[Left], *, uncounted: bool = False) -> Bundle:
    """Return the card of files that were copied out, and of those that were not.

    ``uncounted``: there are more files than the host looks at.
    """
    title = f"{count(len(files), 'file')} copied out" if files else "No file was copied out"
    notes = [f"Not copied: {visible(file.name)}: {file.why}" for file in left[:_FILES]]
    if len(left) > _FILES:
        notes.append(f"Not copied: {len(left) - _FILES:,} more")
    if uncounted:
        more_note = (
            "There are more files than cellblock looks at: write fewer, or narrow the patterns."
        )
        notes.append(more_note)
    paths = [clip(visible(file.path), _FILE_COLUMNS) for file in files[:_FILES]]
    column = max(map(width, paths), default=0)
    lines = [title]
    body = []
    for path, file in zip(paths, files, strict=False):
        about = size(file.size_bytes), file.content_type
        lines.append(f"  {path}{' ' * (column - width(path))}  {'  '.join(about)}")
        # With "./" no name can be read as an address of another scheme.
        href = f"./{quote(file.path)}"
        path_html = c.element("a", path, href=href) if file.linked else c.code(path)
        about_html = c.element("span", f" · {' · '.join(about)}", style=f"color:{c.MUTED}")
        body.append(c.paragraph(path_html, about_html, tight=True))
    if len(files) > _FILES:
        more_note = f"and {len(files) - _FILES:,} more"
        lines.append(f"  {more_note}")
        body.append(c.paragraph(more_note, color=c.MUTED, tight=True))
    return c.make_card(
        title,
        *body,
        *(c.paragraph(note, color=c.MUTED) for note in notes),
        lines=[*lines, *(f"  {note}" for note in notes)],
        symbol="↧",
        color=c.AMBER if notes else c.GREEN,
        mime=ARTIFACTS_JSON,
        data={
            "artifacts": [{key: getattr(file, key) for key in _FILE_JSON} for file in files],
            "not_copied": [file._asdict() for file in left],
            "uncounted": uncounted,
        },
    )
