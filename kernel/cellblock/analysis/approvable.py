"""What a user may approve of importing beyond what a policy allows; nothing else is asked about.

Of the standard library: the modules in the table, shown by their public names as those on the
allowlist are. None of them hands out the interpreter, text that runs, processes or the network,
and none does more with files than open those that it is told to, which the guards refuse in mode
safe. What is neither here nor on the allowlist does more than that, and whoever approves of it in
a hurry has given the language layer away.

Packages: only where the policy lets packages in as they are (``allowed_modules``), for the guards
are laid out for that before the first cell, or they are not. Whether one is installed where cells
can't write is the host's to find out.
"""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cellblock.analysis.findings import Finding
    from cellblock.analysis.policy import Rules

#: Imports that are asked about for one cell.
MOST_WANTED = 20
#: Where an import can be approved, what its remedy begins with.
REMEDY = "approve it where you can be asked"


class Entry(NamedTuple):
    """What cells may write, the modules that it brings, and what those do."""

    module: str
    brings: tuple[str, ...]
    rationale: str


def _rows(*rows: tuple[str, str]) -> tuple[Entry, ...]:
    return tuple(Entry(module, (module,), rationale) for module, rationale in rows)


#: Sorted, one module a row.
APPROVABLE: tuple[Entry, ...] = (
    *_rows(
        ("argparse", "reads options from a list of words; opens files that it is told to"),
        ("bz2", "compresses in memory; opens files that it is told to"),
        ("configparser", "reads settings from text; opens files that it is told to"),
        ("csv", "reads and writes tables as text; opens no file itself"),
        ("fnmatch", "compares names with patterns"),
        ("getopt", "reads options from a list of words"),
        ("gzip", "compresses in memory; opens files that it is told to"),
        ("html.entities", "names of characters"),
        ("html.parser", "takes HTML apart"),
        ("lzma", "compresses in memory; opens files that it is told to"),
        ("optparse", "reads options from a list of words"),
        ("plistlib", "reads and writes property lists"),
        ("quopri", "encoding"),
        ("sched", "calls functions at their time, in the cell"),
        ("shlex", "divides text into words as a shell does; starts none"),
        ("stringprep", "character tables"),
        ("tomllib", "reads TOML"),
        ("wave", "reads and writes sound; opens files that it is told to"),
    ),
    Entry(
        "xml.etree",
        ("xml.etree.ElementTree",),
        "reads and writes XML; opens files that it is told to",
    ),
    *_rows(
        ("xml.etree.ElementTree", "reads and writes XML; opens files that it is told to"),
        ("zipfile", "packs in memory; opens files that it is told to"),
    ),
)
_BY_NAME: Mapping[str, Entry] = MappingProxyType({entry.module: entry for entry in APPROVABLE})

#: Packages that nobody may approve of, and why: sorted, one a row. Nor any whose name begins with
#: an underscore: nobody is meant to import it.
NEVER: Mapping[str, str] = MappingProxyType(
    {
        "IPython": "holds the running shell, which runs unchecked text",
        "cellblock": "is what guards the cell",
        "cffi": "calls any C function and reads any memory",
        "cloudpickle": "makes code out of bytes",
        "debugpy": "runs unchecked text in any thread",
        "dill": "makes code out of bytes",
        "ipykernel": "holds what the kernel speaks through",
        "jupyter_client": "starts kernels and speaks to them",
        "jupyter_core": "tells where Jupyter keeps its keys",
        "jupyter_server": "starts processes",
        "pip": "installs packages",
        "pkg_resources": "loads any module by name",
        "psutil": "describes and controls processes",
        "pytest": "rewrites and runs files",
        "setuptools": "builds packages, which runs their code",
        "test": "runs Python's own tests, in processes",
        "zmq": "opens network connections",
    }
)


class Import(NamedTuple):
    """One thing to be approved of. A ``module`` comes by its public names, a ``package`` whole."""

    kind: Literal["module", "package"]
    name: str
    why: str


def approvable(module: str, rules: Rules) -> tuple[Import, ...]:
    """Return what approving of ``import module`` would let in; nothing where nobody may.

    Whether a package is there at all is not asked here.
    """
    if (entry := _BY_NAME.get(module)) is not None:
        return tuple(Import("module", name, entry.rationale) for name in entry.brings)
    top = module.partition(".")[0]
    never = top in NEVER or top.startswith("_") or top in sys.stdlib_module_names
    if never or not rules.raw_modules or not module.isprintable():
        return ()
    return (Import("package", top, "trusted with all that this process may do"),)


def wanted(findings: Iterable[Finding], rules: Rules) -> tuple[Import, ...]:
    """Return what would have to be approved of for a cell with these findings to run.

    Nothing where that can't be: another rule is broken, a module is one that nobody may approve
    of, or there are more than can be asked about.
    """
    found: dict[str, Import] = {}
    for finding in findings:
        imports = approvable(finding.subject, rules)
        if finding.rule != "import-not-allowed" or not imports:
            return ()
        found |= {one.name: one for one in imports}
    return tuple(found.values()) if len(found) <= MOST_WANTED else ()


def granting(rules: Rules, imports: Iterable[Import]) -> Rules:
    """Return the rules under which these may be imported, too."""
    named: dict[str, list[str]] = {"module": [], "package": []}
    for one in imports:
        named[one.kind].append(one.name)
    return rules.granting(named["module"], named["package"])
