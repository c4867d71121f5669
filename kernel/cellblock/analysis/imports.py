"""Checks of import statements: allowed modules and names only, no relative imports.

It also has the table of modules that a user may approve beyond the policy (``approvable``), and the
reasons and remedies for refused modules.
"""

from __future__ import annotations

import difflib
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from cellblock.analysis.allowlist import SCIENCE
from cellblock.analysis.findings import (
    FINDINGS_LIMIT,
    REPLACED_MODULES,
    Remedy,
    allow_addresses,
    allowing,
    for_module,
    sentence,
    word_set,
)
from cellblock.analysis.names import attribute_allowed, check_binding, refuse_reserved

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Mapping

    from cellblock.analysis.findings import Finding, Report, Rules


# --- imports that a user may approve beyond those that a policy allows ----------------------------
#
# Of the standard library, the modules in the table, by their public names, as those on the
# allowlist. None of them gives access to the interpreter, runs text, starts processes or uses the
# network, and with files they only open those that they are told to, which the guards refuse in
# mode safe. A module that is neither here nor on the allowlist does more than that: somebody who
# approves it in a hurry has given up the language layer.
#
# Packages only if the policy lets packages in as they are (``allowed_modules``), since the guards
# are set up for that before the first cell or not at all. The host finds out whether a package is
# installed where cells can't write.

#: How similar an allowed name must be to a refused one to be suggested (difflib).
_NEAR = 0.75
#: The most imports that are asked about for one cell.
MAX_WANTED = 20
#: The start of the remedy for an import that can be approved.
REMEDY = "approve it where you can be asked"


#: The modules that may be approved, and what each does: sorted, one a row.
APPROVABLE: Mapping[str, str] = MappingProxyType(
    {
        "argparse": "reads options from a list of words; opens files that it is told to",
        "bz2": "compresses in memory; opens files that it is told to",
        "configparser": "reads settings from text; opens files that it is told to",
        "fnmatch": "compares names with patterns",
        "getopt": "reads options from a list of words",
        "html.entities": "names of characters",
        "html.parser": "takes HTML apart",
        "lzma": "compresses in memory; opens files that it is told to",
        "optparse": "reads options from a list of words",
        "plistlib": "reads and writes property lists",
        "quopri": "encoding",
        "sched": "calls functions at their time, in the cell",
        "shlex": "divides text into words as a shell does; starts none",
        "stringprep": "character tables",
        "tomllib": "reads TOML",
        "wave": "reads and writes sound; opens files that it is told to",
    }
)

#: Packages that can't be approved, and why: sorted, one a row. Neither can those whose names begin
#: with an underscore, since nobody is meant to import them.
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
    """An import to approve: a ``module`` by its public names, or a whole ``package``."""

    kind: Literal["module", "package"]
    name: str
    why: str


def approvable(module: str, rules: Rules) -> tuple[Import, ...]:
    """Return the imports that an approval of ``import module`` would allow; none if it can't be.

    Whether a package is installed is not checked here.
    """
    if module in APPROVABLE:
        return (Import("module", module, APPROVABLE[module]),)
    top = module.partition(".")[0]
    never = top in NEVER or top.startswith("_") or top in sys.stdlib_module_names
    if never or not rules.raw_modules or not module.isprintable():
        return ()
    return (Import("package", top, "trusted with all that this process may do"),)


def imports_to_approve(findings: Iterable[Finding], rules: Rules) -> tuple[Import, ...]:
    """Return the imports that must be approved so that a cell with these findings can run.

    Return none if the cell can't be made to run so: it breaks another rule, a module can't be
    approved, or there are more imports than can be asked about.
    """
    needed: dict[str, Import] = {}
    for finding in findings:
        imports = approvable(finding.subject, rules)
        if finding.rule != "import-not-allowed" or not imports:
            return ()
        needed |= {each.name: each for each in imports}
    return tuple(needed.values()) if len(needed) <= MAX_WANTED else ()


def granting(rules: Rules, imports: Iterable[Import]) -> Rules:
    """Return rules that also allow these imports."""
    named: dict[str, list[str]] = {"module": [], "package": []}
    for entry in imports:
        named[entry.kind].append(entry.name)
    return rules.granting(named["module"], named["package"])


_FILES = "reads and changes files"
_PROCESS = "starts processes"
_NETWORK = "opens network connections"
_RUNS = "runs code that nobody has checked"

#: Why the modules that people try first are refused. Others have the text of the rule.
_WHY: Mapping[str, str] = MappingProxyType(
    {
        "ast": "compiles code",
        "atexit": "runs code after the session",
        "builtins": "holds every builtin, the refused ones too",
        "ctypes": "calls any C function and reads any memory",
        "gc": "hands out every object in the process",
        "getpass": "asks for a password behind a mask",
        "glob": "lists files",
        "inspect": "hands out frames, code and source files",
        "marshal": "makes code out of bytes",
        "netrc": "reads stored passwords",
        "pickle": "calls anything that the pickled bytes name",
        "psutil": "describes and controls processes",
        "pydoc": "loads any module by name",
        "shutil": "copies and removes files",
        "signal": "controls processes",
        "threading": "starts threads that outlive the cell",
    }
    | dict.fromkeys(
        word_set("""
            anthropic cohere ftplib groq http httpx litellm mistralai ollama openai
            requests smtplib socket ssl urllib urllib3
        """),
        _NETWORK,
    )
    | dict.fromkeys(
        word_set("""
            bz2 codecs configparser fileinput linecache lzma shelve sqlite3 tarfile tempfile
        """),
        _FILES,
    )
    | dict.fromkeys(word_set("code codeop doctest runpy"), _RUNS)
    | dict.fromkeys(word_set("importlib pkgutil"), "loads any module")
    | dict.fromkeys(word_set("multiprocessing pty subprocess webbrowser"), _PROCESS)
    | dict.fromkeys(word_set("nt posix"), "reads and changes files, processes and the environment")
    | dict.fromkeys(word_set("platform sysconfig"), "describes the machine")
)

#: What to use instead of a module, if there is something.
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "codecs": "use str.encode and bytes.decode",
        "getpass": "use input(), which shows what is typed",
        "inspect": "use name? and the function's __annotations__",
        "pickle": "use json for data and copy.deepcopy for copies",
        "threading": "use asyncio.to_thread or concurrent.futures.ThreadPoolExecutor",
        "xml": "use xml.etree.ElementTree, whose indent() lays a tree out",
    }
)
_TIMES = ("runs text as code", "use %timeit f(x)")
_SETTINGS = (
    "is the environment of the user's programs, where keys may be",
    'take the value as an input, inputs["NAME"]',
)
_FOLDER = (
    "tells where the kernel runs",
    "name files from the notebook's folder: cells of mode safe begin in a scratch folder",
)
#: Names of allowed modules that are left out, why, and what to use instead.
_LEFT_OUT: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "os.environ": _SETTINGS,
        "os.environb": _SETTINGS,
        "os.getcwd": _FOLDER,
        "os.getcwdb": _FOLDER,
        "os.getenv": _SETTINGS,
        "os.getenvb": _SETTINGS,
        "reprlib.aRepr": ("shortens for the whole process", "make your own, reprlib.Repr()"),
        "sys.setrecursionlimit": (
            "lets calls overrun the stack, at which the interpreter crashes",
            "write a loop with a list of what is left to do",
        ),
        "timeit.Timer": _TIMES,
        "timeit.repeat": _TIMES,
        "timeit.timeit": _TIMES,
        "types.coroutine": ("makes code out of a function's code", "write async def"),
        "weakref.WeakMethod": (
            "takes a method apart",
            "keep a weakref.ref to the object, and call its method",
        ),
        "zipfile.is_zipfile": (
            "opens files",
            "call zipfile.ZipFile(io.BytesIO(data)), which raises zipfile.BadZipFile",
        ),
    }
)


def check_import(node: ast.Import, report: Report) -> None:
    """Judge ``import a.b as c``."""
    for alias in node.names:
        bound = alias.asname or alias.name.partition(".")[0]
        if not report.rules.allows_module(alias.name):
            _refuse(alias.name, alias, report)
        elif not report.rules.is_raw(alias.name):
            report.imported[bound] = alias.name if alias.asname else bound
        refuse_reserved(bound, alias, report)


def check_import_from(node: ast.ImportFrom, report: Report) -> None:
    """Judge ``from a.b import c as d``. A star is fine: a facade has allowed names only."""
    if node.level:
        text = "." * node.level + (node.module or "")
        report.add("relative-import", node, text)
        return
    module = node.module or ""
    is_allowed = report.rules.allows_module(module)
    if not is_allowed:
        _refuse(module, node, report)
    for alias in node.names:
        check_binding(alias.asname or alias.name, alias, report)
        if not is_allowed or report.rules.is_raw(module) or alias.name == "*":
            continue
        if not member_allowed(report.rules, module, alias.name):
            _refuse_member(module, alias.name, report, alias)


def member_allowed(rules: Rules, module: str, name: str) -> bool:
    """Return whether a cell may use ``name`` of ``module``, as far as the source can tell.

    If the policy allows all public names of a module, its facade decides when the cell runs.
    """
    if f"{module}.{name}" in rules.modules:
        return True
    if module not in rules.modules:  # a package that is only the way to an allowed submodule
        return rules.allows_module(f"{module}.{name}")
    names = rules.modules[module]
    if names is None:
        return not name.startswith("_") or (name.endswith("__") and attribute_allowed(name))
    return name in names or name in ("__name__", "__doc__", "__all__", "__dict__", "__class__")


def settle_uses(report: Report) -> None:
    """Refuse ``module.name`` for names that are held back, if the cell itself imports the module.

    A name that the cell also binds otherwise is not judged; the facade decides about it.
    """
    if not report.imported:
        return
    for name, node in report.uses:
        module = report.imported.get(name)
        if module is None or name in report.bound or not attribute_allowed(node.attr):
            continue
        if not member_allowed(report.rules, module, node.attr):
            _refuse_member(module, node.attr, report, node)


def _refuse_member(module: str, name: str, report: Report, node: ast.alias | ast.Attribute) -> None:
    why, remedy = why_member_refused(module, name, report.rules)
    report.add_last_word(
        "module-name-not-allowed", node, f"{module}.{name}", why=why, remedy=remedy
    )


def why_member_refused(module: str, name: str, rules: Rules) -> tuple[str, Remedy]:
    """Return why ``rules`` hold ``module.name`` back, and the remedy.

    For the source check of a cell that imports the module, and for the facade in any other cell.
    """
    names = rules.modules.get(module)
    subject = f"{module}.{name}"
    whole = tuple[str, ...]()
    if module.partition(".")[0] not in NEVER:
        whole = allowing(module, rules)
    if left_out := _LEFT_OUT.get(subject):
        return left_out[0], Remedy(sentence(left_out[1]), whole)
    why = f"is not among the names that this policy allows from {module}"
    near = difflib.get_close_matches(name, names or (), n=1, cutoff=_NEAR)
    suggestion = f"use {module}.{near[0]}" if near else ""
    if instead := REPLACED_MODULES.get(subject):
        return why, instead.remedy(rules, first=suggestion)
    if whole or suggestion:
        return why, Remedy(sentence(suggestion), whole)
    return why, Remedy(f"Use what dir({module}) lists.")


def _refuse(module: str, node: ast.alias | ast.ImportFrom, report: Report) -> None:
    if len(report.findings) >= FINDINGS_LIMIT:
        return
    top, rules = module.partition(".")[0], report.rules
    why = NEVER.get(top) or _WHY.get(module) or _WHY.get(top, "")
    is_held_back = top in NEVER or top.startswith("_")
    lines = () if is_held_back else allowing(module, rules)
    # These modules are of no use without the network, or without processes.
    if lines and why == _NETWORK:
        lines += (allow_addresses(report.source),)
    elif lines and why == _PROCESS:
        lines += ("subprocess_execution = true",)
    suggestion = _INSTEAD.get(top, "")
    if top in SCIENCE and rules.extends == "safe":
        suggestion = "choose the kernel cellblock (data), which has it"
    approval = REMEDY if rules.approvals and approvable(module, rules) else ""
    if instead := for_module(module, report):
        remedy = instead.remedy(rules, first=suggestion, more=lines, asked=approval)
    elif suggestion or approval or lines:
        remedy = Remedy(sentence(suggestion, approval), lines)
    elif is_held_back:
        remedy = Remedy("Use an allowed module.")
    else:
        remedy = Remedy(
            f"{top[:60]} is not installed here. If it is a file beside the notebook, choose the "
            "kernel cellblock (data), which imports it."
        )
    report.add("import-not-allowed", node, module, why=why, remedy=remedy)
