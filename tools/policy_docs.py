"""Write the tables in the docs: fields from the model's own documentation, how each is narrowed.

The fields of operations have a table of their own, in docs/operations.md.

python tools/policy_docs.py [--check]

With ``--check`` nothing is written, and the exit status is 1 if the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellblock.host.services.never_kept import NEVER_KEPT
from cellblock.policy.load import preset_values
from cellblock.policy.model import ROWS, SECTIONS
from cellblock.policy.operations import OPERATIONS
from cellblock.policy.paths import SECRET_NAMES
from cellblock.policy.rows import EnforcedBy, Never
from cellblock.policy.schema import json_schema
from cellblock.policy.vocabulary import PRESETS

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- {0}: made by tools/policy_docs.py -->\n", "<!-- end of {0} -->\n"
#: What it takes to have less of a field.
TAKES = {
    EnforcedBy.host: "the next cell has it",
    EnforcedBy.locks: "more locks on the guest that runs",
    EnforcedBy.guest: "a new guest",
}
#: Fields with a table for each name: how a file calls them, and what is in one.
NAMED = {"mcp": ("tools.mcp", "McpServer"), "credentials": ("credentials", "Credential")}
LONG = 4


def table() -> str:
    """Return one row a field: type, meaning, and its value in each preset."""
    presets = [preset_values(name) for name in PRESETS]
    head = f"| field | type | meaning | {' | '.join(PRESETS)} |\n"
    head += f"|---|---|---|{'---|' * len(PRESETS)}\n"
    whole = json_schema()
    rows = []
    for name, field in whole["properties"].items():
        if name not in SECTIONS or name in (*NAMED, "ops"):
            rows.append(_row(name, field, presets))
            if name in NAMED:
                section, table = NAMED[name]
                inner = whole["$defs"][table]["properties"].items()
                none: list[dict[str, Any]] = [{} for _ in presets]
                rows += [_row(key, own, none, section=f"{section}.NAME.") for key, own in inner]
            continue
        own = [preset.get(name, {}) for preset in presets]
        for key, inner in whole["$defs"][name.title()]["properties"].items():
            rows.append(_row(key, inner, own, section=f"{name}."))
    return head + "".join(rows)


def operations() -> str:
    """Return one row a field of an operation's table: type, meaning, default."""
    defined = json_schema()["$defs"]
    rows = ["| field | type | meaning | default |\n|---|---|---|---|\n"]
    for name, table in OPERATIONS.items():
        for key, field in defined[table.__name__]["properties"].items():
            rows.append(_row(key, field, [{}], section=f"ops.{name}."))
    return "".join(rows)


def narrowings() -> str:
    """Return one row for fields that are narrowed alike, and one for each reason why not."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, row in ROWS.items():
        way = row.narrower
        never = isinstance(way, Never)
        key = ("no", way.why) if never else (way.words, TAKES[row.enforced_by])
        alike.setdefault(key, []).append(f"`{name}`")
    order = list(TAKES.values())
    rows = sorted(alike.items(), key=lambda row: (*order, row[0][1]).index(row[0][1]))
    lines = (f"| {', '.join(names)} | {words} | {takes} |\n" for (words, takes), names in rows)
    return "| fields | narrower is | takes |\n|---|---|---|\n" + "".join(lines)


def secrets() -> str:
    """Return one row a name under which projects keep secrets."""
    rows = (f"| `{name}` | {why} |\n" for name, why in SECRET_NAMES.items())
    return "| name | what it holds |\n|---|---|\n" + "".join(rows)


def never_kept() -> str:
    """Return one row a reason for which names are not kept, with those names."""
    names: dict[str, list[str]] = {}
    for name, why in NEVER_KEPT.items():
        names.setdefault(why, []).append(f"`{name}`")
    rows = (f"| {', '.join(names[why])} | {why} |\n" for why in sorted(names, key=str.casefold))
    return "| names | why |\n|---|---|\n" + "".join(rows)


def _row(name: str, field: dict[str, Any], given: list[dict[str, Any]], section: str = "") -> str:
    values = " | ".join(_value(one.get(name, field["default"])) for one in given)
    meaning = " ".join(field["description"].split()).replace("|", "\\|").replace("``", "`")
    return f"| `{section}{name}` | {_type(field)} | {meaning} | {values} |\n"


def _type(field: dict[str, Any]) -> str:
    choices = field.get("anyOf", [field])
    words = {"array": "list", "number": "seconds", "boolean": "true or false", "null": '"none"'}
    words |= {"object": "table", "size": "size"}
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kinds = [choice.get("type", "object") for choice in choices]  # a reference is to a table
    if any("pattern" in choice for choice in choices):  # a number of bytes, or a size with its unit
        kinds = ["size", *(kind for kind in kinds if kind not in ("integer", "string"))]
    return " or ".join(words.get(kind, kind) for kind in kinds)


def _value(value: object) -> str:
    if value is None or value == "none":
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return _listed([str(one) for one in value])
    if isinstance(value, int):
        return _number(value)
    return f"{value:g}" if isinstance(value, float) else f"`{value}`" if value else "empty"


def _listed(values: list[str]) -> str:
    shown = ", ".join(f"`{value}`" for value in values[:LONG])
    return f"{shown}, … ({len(values)})" if len(values) > LONG else shown or "empty"


def _number(value: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if value >= unit and value % unit == 0:
            return f"{value // unit} {name}"
    return str(value)


def _with(page: str, what: str, content: str) -> str:
    begin, end = BEGIN.format(what), END.format(what)
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + content + end + after


def main(arguments: list[str]) -> int:
    """Write or check the page; return the exit status."""
    stale = [page for page, made in PAGES.items() if _stale(page, made, arguments)]
    return int("--check" in arguments and bool(stale))


PAGES = {
    "policy.md": {"fields": table, "narrowings": narrowings, "secrets": secrets},
    "changes.md": {"names": never_kept},
    "operations.md": {"fields": operations},
}


def _stale(name: str, made: dict[str, Callable[[], str]], arguments: list[str]) -> bool:
    """Write or check one page; return whether it was out of date."""
    page = DOCS / name
    old = new = page.read_text("utf-8")
    for what, content in made.items():
        new = _with(new, what, content())
    if new != old and "--check" not in arguments:
        page.write_text(new, "utf-8")
    return new != old


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
