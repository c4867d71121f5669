"""Write what docs/rules.md, allowlist.md and admission.md have of the language layer's tables.

python tools/rules_docs.py [--check]

With ``--check`` nothing is written, and the exit status is 1 if a page is out of date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.analysis import RULES
from cellblock.analysis.allowlist import ALLOWLIST, SCIENCE
from cellblock.analysis.magic_table import MAGICS
from cellblock.analysis.names import BINDABLE_BUILTINS, REFUSED_BUILTINS, RESERVED
from cellblock.batch.verdict import CHECK_RULES, REPORTED_RULES
from cellblock.policy import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

DOCS: Final = Path(__file__).parents[1] / "docs"
PRESETS: Final = Path(load.__file__).parent / "presets"
BEGIN: Final = "<!-- {}: made by tools/rules_docs.py -->\n"
END: Final = "<!-- end of {} -->\n"
#: A list of a preset's, one entry a line, its reason beside it.
_ENTRY: Final = re.compile(r'^    "([^"]+)", +# (.+)$', re.MULTILINE)


def rules() -> Iterator[str]:
    """Yield one row a rule: its heading on the page, what it refuses, who reports it."""
    yield "| rule | what it refuses | found by |\n|---|---|---|\n"
    for name, rule in sorted({**RULES, **CHECK_RULES}.items()):
        kernel = "kernel, check" if name in REPORTED_RULES else "kernel"
        kernel = "a running cell" if name == "operation-not-allowed" else kernel
        found = "check" if name in CHECK_RULES else kernel
        yield f"| [`{name}`](#{name}) | {rule.title} | {found} |\n"


def modules() -> Iterator[str]:
    """Yield one row a module of the allowlist of record."""
    yield "| module | class | names | |\n|---|---|---|---|\n"
    for entry in ALLOWLIST:
        names = "all public ones" if entry.names is None else _listed(entry.names)
        yield f"| `{entry.module}` | {entry.kind} | {names} | {entry.rationale} |\n"


def packages() -> Iterator[str]:
    """Yield one row a package of the group ``@science``."""
    yield "| package | |\n|---|---|\n"
    yield from _rows(SCIENCE)


def builtins() -> Iterator[str]:
    """Yield one row a name that cells may not use."""
    yield "| name | refused | because it | instead |\n|---|---|---|---|\n"
    for name, (why, remedy) in REFUSED_BUILTINS.items():
        when = "unless cells bind it" if name in BINDABLE_BUILTINS else "always"
        yield f"| `{name}` | {when} | {why} | {remedy} |\n"
    for name, why in RESERVED.items():
        yield f"| `{name}` | always, and binding it | {why} | Any other name. |\n"


def magics() -> Iterator[str]:
    """Yield one row a magic that is allowed by default, or that preset data adds."""
    yield "| magic | |\n|---|---|\n"
    allowed = {name: magic.allowed for name, magic in MAGICS.items() if magic.allowed}
    added = {
        name: f"{reason}; preset data alone" for name, reason in _added("data", "magics").items()
    }
    yield from _rows(dict(sorted({**allowed, **added}.items())))


def views() -> Iterator[str]:
    """Yield the magics that need no approval, as the host answers them."""
    names = (f"`%{name}`" for name, magic in MAGICS.items() if magic.view)
    yield f"{', '.join(names)}\n"


def _rows(reasons: Mapping[str, str]) -> Iterator[str]:
    for name, reason in reasons.items():
        yield f"| `{name}` | {reason} |\n"


def _listed(names: tuple[str, ...]) -> str:
    return " ".join(f"`{name}`" for name in names)


def _added(preset: str, field: str) -> dict[str, str]:
    """Return what a preset adds to a list, with the reasons beside the entries.

    Raises RuntimeError if one has none.
    """
    text = (PRESETS / f"{preset}.toml").read_text("utf-8")
    _, _, after = text.partition(f"\nadd.{field} = [\n")
    found = dict(_ENTRY.findall(after.partition("\n]")[0] + "\n"))
    if list(found) != tomllib.loads(text)["add"][field]:
        raise RuntimeError(f"{field} of preset {preset} is not one entry a line with its reason")
    return found


PAGES: Final[Mapping[str, tuple[Callable[[], Iterator[str]], ...]]] = {
    "admission.md": (views,),
    "rules.md": (rules,),
    "allowlist.md": (modules, packages, builtins, magics),
}


def page(name: str) -> str:
    """Return a page with its tables made anew."""
    text = (DOCS / name).read_text("utf-8")
    for made in PAGES[name]:
        begin, end = BEGIN.format(made.__name__), END.format(made.__name__)
        before, _, rest = text.partition(begin)
        text = before + begin + "".join(made()) + end + rest.partition(end)[2]
    return text


def main(arguments: list[str]) -> int:
    """Write the pages, or check them; return the exit status."""
    made = {DOCS / name: page(name) for name in PAGES}
    stale = {path: text for path, text in made.items() if path.read_text("utf-8") != text}
    if "--check" in arguments:
        return int(bool(stale))
    for path, text in stale.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
