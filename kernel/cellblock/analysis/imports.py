"""Import statements: allowed modules and names only, and no relative imports."""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import TYPE_CHECKING

from cellblock.analysis.approvable import REMEDY, approvable
from cellblock.analysis.attributes import attribute_allowed
from cellblock.analysis.instead import MODULES, read_by_pandas
from cellblock.analysis.names import check_binding, refuse_reserved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.analysis.findings import Remedy, Report
    from cellblock.analysis.policy import Rules

_FILES = "reads and changes files"
_PROCESS = "starts processes"
_NETWORK = "opens network connections"
_RUNS = "runs code that nobody has checked"
_INSIDE = "reaches into the interpreter"

#: Why the modules that people try first are refused; the rest get the rule's own text.
_WHY: Mapping[str, str] = MappingProxyType(
    {
        "anthropic": _NETWORK,
        "ast": "compiles code",
        "atexit": "runs code after the session",
        "builtins": "holds every builtin, the refused ones too",
        "bz2": _FILES,
        "code": _RUNS,
        "codecs": _FILES,
        "codeop": _RUNS,
        "cohere": _NETWORK,
        "configparser": _FILES,
        "csv": "mostly works on files",
        "ctypes": "calls any C function and reads any memory",
        "doctest": _RUNS,
        "fileinput": _FILES,
        "ftplib": _NETWORK,
        "gc": "hands out every object in the process",
        "getpass": "asks for a password behind a mask",
        "glob": "lists files",
        "groq": _NETWORK,
        "gzip": _FILES,
        "http": _NETWORK,
        "httpx": _NETWORK,
        "importlib": "loads any module",
        "inspect": "hands out frames, code and source files",
        "linecache": _FILES,
        "litellm": _NETWORK,
        "lzma": _FILES,
        "marshal": "makes code out of bytes",
        "mistralai": _NETWORK,
        "multiprocessing": _PROCESS,
        "netrc": "reads stored passwords",
        "ollama": _NETWORK,
        "openai": _NETWORK,
        "os": "reads and changes files, processes and the environment",
        "pickle": "calls anything that the pickled bytes name",
        "pkgutil": "loads any module",
        "platform": "describes the machine",
        "posix": "reads and changes files, processes and the environment",
        "psutil": "describes and controls processes",
        "pty": _PROCESS,
        "pydoc": "loads any module by name",
        "requests": _NETWORK,
        "runpy": _RUNS,
        "shelve": _FILES,
        "shutil": "copies and removes files",
        "signal": "controls processes",
        "smtplib": _NETWORK,
        "socket": _NETWORK,
        "sqlite3": _FILES,
        "ssl": _NETWORK,
        "subprocess": _PROCESS,
        "sys": _INSIDE,
        "sysconfig": "describes the machine",
        "tarfile": _FILES,
        "tempfile": _FILES,
        "threading": "starts threads that outlive the cell",
        "timeit": _RUNS,
        "urllib": _NETWORK,
        "urllib3": _NETWORK,
        "webbrowser": _PROCESS,
        "zipfile": _FILES,
    }
)

#: Names of os that list or open.
_FILES_OF_OS = frozenset({"*", "fdopen", "fwalk", "listdir", "open", "path", "scandir", "walk"})
#: What to use instead, where there is something.
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "codecs": "use str.encode and bytes.decode",
        "csv": "split the lines of an input, or use preset data with pandas",
        "getpass": "use input(), which shows what is typed",
        "inspect": "use name? and the function's __annotations__",
        "pickle": "use json for data and copy.deepcopy for copies",
        "sys": "write print(..., file=buffer) with io.StringIO for captured output",
        "threading": "use asyncio.to_thread or concurrent.futures.ThreadPoolExecutor",
        "timeit": "use the %timeit magic",
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
    """Judge ``from a.b import c as d``; a star takes what the facade holds, which is safe."""
    if node.level:
        text = "." * node.level + (node.module or "")
        report.add("relative-import", node, text)
        return
    module = node.module or ""
    known = report.rules.allows_module(module)
    if not known:
        _refuse(module, node, report)
    for alias in node.names:
        check_binding(alias.asname or alias.name, alias, report)
        if known and not report.rules.is_raw(module):
            _check_member(module, alias, report)


def _check_member(module: str, alias: ast.alias, report: Report) -> None:
    name = alias.name
    if name != "*" and not member_allowed(report.rules, module, name):
        _refuse_member(module, name, report, alias)


def member_allowed(rules: Rules, module: str, name: str) -> bool:
    """Whether a cell may take ``name`` from ``module``, as far as the source can tell.

    Where the policy allows all public names the facade decides at run time.
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
    """Refuse ``module.name`` for held-back names, where the cell itself imported the module.

    Only names that nothing else in the cell binds are judged; the facade settles the rest.
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
    names = report.rules.modules.get(module)
    subject = f"{module}.{name}"
    why = f"is not among the names that this policy allows from {module}"
    if instead := MODULES.get(subject):
        remedy: Remedy = instead.remedy(report.rules, first=f"use what dir({module}) lists")
    elif names and len(names) <= 12:  # noqa: PLR2004 - a list longer than this is no help
        remedy = f"Allowed from {module}: {', '.join(names)}."
    else:
        remedy = f"dir({module}) lists what is allowed; the operator can widen it."
    report.add_last_word("module-name-not-allowed", node, subject, why=why, remedy=remedy)


def _refuse(module: str, node: ast.alias | ast.ImportFrom, report: Report) -> None:
    top = module.partition(".")[0]
    why = _WHY.get(module) or _WHY.get(top, "")
    own, more = _INSTEAD.get(top, ""), f'add "{module}" to allowed_modules'
    if top == "csv":
        own = read_by_pandas(report.rules) or own
    asked = REMEDY if report.rules.approvals and approvable(module, report.rules) else ""
    instead = MODULES.get(module) or MODULES.get(top)
    if module == "os" and isinstance(node, ast.ImportFrom):
        # Of its names, only these are what the host does.
        instead = instead if _FILES_OF_OS.intersection(alias.name for alias in node.names) else None
    if instead:
        remedy: Remedy = instead.remedy(report.rules, first=own, more=more, asked=asked)
    else:
        text = ", or ".join(filter(None, [own, asked, f"let the operator {more}"]))
        remedy = f"{text[0].upper()}{text[1:]}."
    report.add("import-not-allowed", node, module, why=why, remedy=remedy)
