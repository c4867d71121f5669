"""``cellblock policy``: show, check, compare and change policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape
from rich.table import Column, Table

from cellblock.cli.common import AsJson, complain_of, load_policy, print_json, say, say_rich
from cellblock.cli.main import group
from cellblock.errors import CellblockError
from cellblock.jupyter.preparation import judge
from cellblock.policy.difference import Difference, Direction, differences
from cellblock.policy.edit import add_lines
from cellblock.policy.model import flat_fields
from cellblock.policy.schema import json_schema
from cellblock.policy.vocabulary import is_size, size_text

if TYPE_CHECKING:
    from cellblock.policy.model import Policy

app: Final = group("policy")
Spec = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A preset or a TOML file.")]


@app.command()
def show(spec: Spec = "safe", *, as_json: AsJson = False) -> None:
    """Show what a policy says. {project} is the current folder."""
    policy = load_policy(spec)
    if as_json:
        print_json(policy.as_dict() | {"digest": policy.digest()})
        return
    say_rich(_policy_table(policy), f"[dim]digest  {policy.digest()}[/]")


@app.command()
def schema() -> None:
    """Print the JSON schema of a policy."""
    print_json(json_schema())


@app.command()
def validate(files: Annotated[list[str], typer.Argument(metavar="FILE...")]) -> None:
    """Check policy files: one line each, exit status 1 when any is wrong."""
    wrong = 0
    for file in files:
        try:
            policy = load_policy(file)
            # What a kernel says when it begins, too.
            if (refusal := judge(file)) is not None:
                raise refusal
        except CellblockError as failure:
            complain_of(failure)
            wrong += 1
        else:
            say(f"{file}: ok{_condition(policy)}")
    raise typer.Exit(code=bool(wrong))


@app.command()
def add(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A policy file; it may be new.")],
    lines: Annotated[list[str], typer.Argument(metavar="LINE...", help="Lines as in a file.")],
    *,
    extends: Annotated[
        str, typer.Option(metavar="PRESET", help="What a new file extends; default safe.")
    ] = "safe",
) -> None:
    """Add lines to a policy file, as the card of a refusal gives them; a new file is made."""
    before, after = add_lines(file, "\n".join(lines), extends=extends, project=Path.cwd())
    _say_differences(before, after, differences(before, after))
    say("Kernels read a policy when they start: restart those that should have it.")


@app.command()
def diff(old: Spec, new: Spec, *, as_json: AsJson = False) -> None:
    """Show where cells may do more or less under NEW than under OLD; status 1 if they differ."""
    before = load_policy(old)
    after = load_policy(new)
    different = differences(before, after)
    if as_json:
        print_json([difference._asdict() for difference in different])
    else:
        _say_differences(before, after, different)
    raise typer.Exit(code=bool(different))


def _say_differences(before: Policy, after: Policy, different: list[Difference]) -> None:
    """Print a table of the differences between two policies."""
    if not different:
        say("They allow the same.")
        return
    names = before.name if before.name == after.name else f"{before.name} → {after.name}"
    table = Table(Column("field", no_wrap=True), names, Column("cells", no_wrap=True))
    for difference in different:
        table.add_row(difference.field, _change(difference), _DIRECTION_WORDS[difference.cells])
    say_rich(table)


_DIRECTION_WORDS: Final[dict[Direction, str]] = {
    "more": "may do more",
    "less": "may do less",
    "other": "may do other things",
}


def _change(difference: Difference) -> str:
    """Return how a value differs: the old and the new, or the entries of a list that differ."""
    old = difference.old
    new = difference.new
    if not (isinstance(old, tuple) and isinstance(new, tuple)):
        return f"{_value_text(old, difference.field)} → {_value_text(new, difference.field)}"
    added = tuple(entry for entry in new if entry not in old)
    left_out = tuple(entry for entry in old if entry not in new)
    signs = (("+", added), ("-", left_out))
    return "\n".join(f"{sign} {_value_text(entries)}" for sign, entries in signs if entries)


def _condition(policy: Policy) -> str:
    """Return the condition under which a policy of mode unsafe can be used; else ""."""
    asks = ", or when its user allows it" if policy.approvals == "prompt" else ""
    unsafe = f" (mode unsafe: starts only with --allow-unsafe{asks})"
    return unsafe if policy.mode == "unsafe" else ""


def _policy_table(policy: Policy) -> Table:
    table = Table("field", "value", title=f"policy {policy.name}", title_justify="left")
    for field, value in flat_fields(policy.as_dict()).items():
        table.add_row(field, _value_text(value, field))
    return table


def _value_text(value: object, field: str = "") -> str:
    """Return a field's value in words, a size with its unit."""
    if isinstance(value, dict):
        granted = {key: own for key, own in value.items() if own not in (None, (), "")}
        return ", ".join(f"{escape(key)} {_value_text(own, key)}" for key, own in granted.items())
    if isinstance(value, tuple):
        return escape(", ".join(value)) or "[dim]nothing[/]"
    if isinstance(value, int) and not isinstance(value, bool) and is_size(field.rpartition(".")[2]):
        return size_text(value)
    special_words = {None: "no limit", True: "yes", False: "no"}
    if value is None or isinstance(value, bool):
        return special_words[value]
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
