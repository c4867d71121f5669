"""Checks of magics and shell escapes, which IPython's transformer has made into calls.

``%time x`` arrives as ``get_ipython().run_line_magic('time', 'x')``. Only such calls, with
constant arguments, may mention ``get_ipython``. A cell may write such a call itself, and is judged
in the same way. Code in an argument is analysed as a cell is, with the line numbers of the cell
around it.

IPython expands ``{expression}`` and ``$name`` in the arguments of most magics, and evaluates them,
so such arguments are refused. ``magic_table`` says which magics take code, and don't expand.
"""

from __future__ import annotations

import ast
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from cellblock.analysis.findings import Remedy, for_command, list_line
from cellblock.analysis.magic_table import MAGICS, of_name
from cellblock.analysis.names import (
    REFUSED_BUILTINS,
    RESERVED,
    SHELL_OBJECT,
    is_free,
    refuse_reserved,
)
from cellblock.analysis.transform import parse, transform_as_ipython

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cellblock.analysis.findings import Report, Rules


#: Why a magic is refused if cells are approved or name a template.
UNAPPROVED = "runs code that nobody approved"
INSTEAD_OF_UNAPPROVED = "Put the code into a cell, and have that approved."
_ELSEWHERE = "Choose the kernel cellblock (data), or another policy of mode confined."
_DEBUGGERS = (
    "Run %xmode Verbose, then the cell again: its traceback has the arguments of each call."
)
#: The remedies for magics that run code which is in no cell.
_INSTEAD_OF_UNCHECKED: Mapping[str, str] = MappingProxyType(
    {
        "debug": _DEBUGGERS,
        "load_ext": _ELSEWHERE,
        "pdb": _DEBUGGERS,
        "reload_ext": _ELSEWHERE,
        "run": _ELSEWHERE,
    }
)

_RUNNERS = frozenset({"run_line_magic", "run_cell_magic"})
#: The number of arguments of a line magic's call. A cell magic's has one more.
_OF_LINE = 2
_SHELL = frozenset({"system", "getoutput", "getoutput_pipe", "system_raw", "system_piped"})
#: The host handles it before any check here, and a guest has no such magic.
_TEMPLATE = "%%template"
#: The magic that shows the policy, and its word that narrows it.
SHOWS_POLICY = "policy"
NARROWS = "narrow"
#: A magic that goes back to an earlier state: with its mark, at the start of a line without it, or
#: in a call that runs it.
_GOES_BACK = re.compile(
    rf"""(?:%|^[ \t]*|magic\(["'])(?:{"|".join(n for n, m in MAGICS.items() if m.goes_back)})\b""",
    re.MULTILINE,
)
#: The traits that ``%config`` may set, and their allowed values.
CONFIG = re.compile(
    r"""\s*(?:(InteractiveShell)\.(ast_node_interactivity)\s*=\s*
        (["'](?:all|last|last_expr|none|last_expr_or_assign)["'])
    |(InlineBackend)\.(figure_formats?)\s*=\s*
        (["']\w++["']|[\[({]\s*+(?:["']\w++["']\s*+(?:,\s*+)?)++[\])}]))\s*+(?:\#.*)?""",
    re.VERBOSE | re.ASCII,
)


_TRAITS = (
    "Set InlineBackend.figure_format, InlineBackend.figure_formats or "
    "InteractiveShell.ast_node_interactivity, to text."
)
_AUTORELOAD = re.compile(r"[0-3]?|off|now|explicit|all|complete")
_FILE_OPTIONS = re.compile(r"(?:^|\s)-\w*[DT]")
_WORD = re.compile(r"\s*\S+")
_MAX_OPTIONS = 24
_LOOKUP_ARGUMENT = re.compile(r"[\w.*%\[\]\s-]*")
_CAPTURE_OPTION = re.compile(r"--no-[a-z]+")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_EXPANDED = re.compile(r"[{}$]")
_STEPS = re.compile(r"[0-9]{1,9}")


def check_call(node: ast.Call, report: Report) -> bool | None:
    """Judge a call if it has the form of a magic's or shell escape's; return True if it has."""
    if type(node.func) is ast.Name:
        if node.func.id == "open":
            report.openings[id(node.func)] = node
        return None
    shape = _shape(node)
    if shape is None:
        return None
    method, arguments = shape
    if method in _SHELL:
        command = arguments[0].strip()
        remedy = _instead(command, report) or ""
        report.commands.append(("shell-escape", node, f"!{command}", "", remedy))
    else:
        _check_magic(node, method, arguments, report)
    return True


def _shape(node: ast.Call) -> tuple[str, list[str]] | None:
    """Return the method and arguments of a call in a form of the transformer's; None otherwise."""
    function = node.func
    if type(function) is not ast.Attribute or node.keywords:
        return None
    shell = function.value
    if type(shell) is not ast.Call or shell.args or shell.keywords:
        return None
    if type(shell.func) is not ast.Name or shell.func.id != SHELL_OBJECT:
        return None
    texts = [a.value for a in node.args if type(a) is ast.Constant and type(a.value) is str]
    expected = {"run_line_magic": 2, "run_cell_magic": 3}.get(function.attr, 1)
    if len(texts) != len(node.args) or len(texts) != expected:
        return None
    if function.attr not in _RUNNERS | _SHELL:
        return None
    return function.attr, texts


def code_of(statement: ast.stmt) -> str | None:
    """Return the code of a statement's magic that runs as the cell's own (%%time); else None."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return None
    _, texts = _shape(statement.value) or ("", [""])
    if texts[0] == "timeit" or not of_name(texts[0]).code_body:
        return None
    return transform_as_ipython(texts[-1])


def steps_of_undo(line: str) -> int:
    """Return how many cells ``%undo`` with this argument undoes; 0 if it isn't a number."""
    steps = without_comment(line) or "1"
    return int(steps) if _STEPS.fullmatch(steps) else 0


def may_go_back(source: str) -> bool:
    """Return whether a cell names a magic that may go back to a state before the cell."""
    return _GOES_BACK.search(source) is not None


def does_nothing(name: str, line: str) -> bool:
    """Return whether a line magic is a usual first line of notebooks that has no effect here.

    Modules don't change while cells run, so there is nothing to reload; and charts are always
    inline.
    """
    argument = without_comment(line)
    if name == "matplotlib":
        return argument == "inline"
    if name == "load_ext":
        return argument == "autoreload"
    return name == "autoreload" and _AUTORELOAD.fullmatch(argument) is not None


def is_unapproved(name: str) -> bool:
    """Return whether a magic is refused in all cells under a policy with admission.

    The mode doesn't matter, nor whether the cell was approved: the code of ``%run x.py`` is in
    x.py, which nobody approved.
    """
    # ``%autoreload`` belongs to the extension that %load_ext would load.
    return of_name(name).unchecked or name == "autoreload"


def check_unapproved(node: ast.Call, report: Report) -> None:
    """Refuse a magic that runs unapproved code, also within code that another magic runs."""
    method, arguments = _shape(node) or ("", [""])
    name = arguments[0]
    line = arguments[1] if method in _RUNNERS else ""
    if method not in _RUNNERS or (len(arguments) == _OF_LINE and does_nothing(name, line)):
        return
    if is_unapproved(name):
        mark = "%" if len(arguments) == _OF_LINE else "%%"
        remedy = INSTEAD_OF_UNAPPROVED
        report.add("magic-not-allowed", node, mark + name, why=UNAPPROVED, remedy=remedy)
    shift = report.shift + node.lineno - 1
    if of_name(name).code_line:
        report.findings += report.nested(line, report.rules, shift)
    if of_name(name).code_body and len(arguments) > _OF_LINE:
        report.findings += report.nested(arguments[2], report.rules, shift + 1)


def settle_commands(tree: ast.AST, report: Report) -> None:
    """Refuse the noted commands and magics that the source always reaches.

    The others may be in a branch that never runs. The guest refuses those when they are reached
    (``guest.shell``).
    """
    reached = _always_reached(tree) if report.commands else ()
    for rule, node, subject, why, remedy in report.commands:
        if id(node) in reached:
            report.add(rule, node, subject, why=why, remedy=remedy)


#: For statements that may skip some of their parts: the parts that always run.
_REACHED = {
    ast.AsyncFor: ("iter",),
    ast.AsyncFunctionDef: ("decorator_list",),
    ast.AsyncWith: ("items", "body"),
    ast.ClassDef: ("decorator_list", "body"),
    ast.For: ("iter",),
    ast.FunctionDef: ("decorator_list",),
    ast.If: ("test",),
    ast.Match: ("subject",),
    ast.Try: ("body", "finalbody"),
    ast.TryStar: ("body", "finalbody"),
    ast.While: ("test",),
    ast.With: ("items", "body"),
}


def _always_reached(tree: ast.AST) -> set[int]:
    """Return the ids of the nodes that always run if the source does."""
    reached = set[int]()
    stack = [tree]
    while stack:
        node = stack.pop()
        reached.add(id(node))
        for name in _REACHED.get(type(node), node._fields):
            value = getattr(node, name, None)
            parts = value if isinstance(value, list) else [value]
            stack.extend(part for part in parts if isinstance(part, ast.AST))
    return reached


def _check_magic(node: ast.Call, method: str, arguments: list[str], report: Report) -> None:
    """Judge a magic: whether the policy allows it, its arguments, and the code that it runs."""
    name, line = arguments[0], arguments[1]
    body = arguments[2] if method == "run_cell_magic" else None
    mark = "%%" if body is not None else "%"
    if body is None and does_nothing(name, line):
        return
    if name not in report.rules.magics or mark + name == _TEMPLATE:
        _refuse_magic(node, name, line, mark, report)
        return
    if name == SHOWS_POLICY and (argument := without_comment(line)):
        _refuse_argument_of_policy(node, argument, report)
    elif name == "config":
        if not CONFIG.fullmatch(line):
            why, remedy = "may set what runs, and is not a setting that cells may change", _TRAITS
            report.add("argument-not-allowed", node, f"{mark}{name} {line}", why=why, remedy=remedy)
    elif _EXPANDED.search(line) and not of_name(name).code_line:
        report.add("argument-not-allowed", node, f"{mark}{name} {line}")
    else:
        _check_arguments(node, name, line, report)
    if name == "prun" and body:  # it runs its argument and its body as one piece of code
        shift = report.shift + node.lineno - 1
        for candidate in code_candidates(line):
            findings = report.nested(f"{candidate}\n{body}", report.rules, shift)
            report.findings += [finding for finding in findings if finding not in report.findings]
    elif body is not None and of_name(name).code_body:
        report.findings += report.nested(body, report.rules, report.shift + node.lineno)


def _check_arguments(node: ast.Call, name: str, line: str, report: Report) -> None:
    if of_name(name).looks_up:
        _check_lookup(node, line, report)
    elif of_name(name).code_line:
        _check_code(node, name, line, report)
    elif name == "capture":  # binds the name that it is given
        for word in line.split():
            if word.isidentifier():
                refuse_reserved(word, node, report)
            elif not _CAPTURE_OPTION.fullmatch(word):
                why = "is not the name of a variable"
                report.add("argument-not-allowed", node, word, why=why)


def _refuse_magic(node: ast.Call, name: str, line: str, mark: str, report: Report) -> None:
    """Refuse a magic that the policy doesn't allow, with the reason and remedy of its kind."""
    if of_name(name).shell_escape or name in ("!", "cmd"):
        report.commands.append(("shell-escape", node, mark + name, "", ""))
        return
    if mark + name == _TEMPLATE and name in report.rules.magics:
        why = "names a template, and is not the cell's first line"
        first = "Put it on the first line of a cell: a template runs alone."
        report.add("magic-not-allowed", node, _TEMPLATE, why=why, remedy=first)
        return
    if name not in MAGICS:
        why, hint = "is not a magic of IPython or cellblock", "%lsmagic lists the magics."
        report.commands.append(("magic-not-allowed", node, mark + name, why, hint))
        return
    if of_name(name).outside:
        why = "works on your folders and programs, which mode safe keeps from cells"
        remedy = _instead(f"{name} {line}", report) or Remedy(_ELSEWHERE)
        report.commands.append(("magic-not-allowed", node, mark + name, why, remedy))
        return
    if of_name(name).unchecked:
        remedy = Remedy(_INSTEAD_OF_UNCHECKED.get(name, "Put the code into a cell."))
    else:
        remedy = Remedy("Write it in Python.", (list_line("add.magics", [name]),))
    report.commands.append(("magic-not-allowed", node, mark + name, "", remedy))


def _instead(command: str, report: Report) -> Remedy | None:
    """Return the remedy for a command: what does the same; None if nothing does."""
    instead = for_command(command, report.rules)
    return None if instead is None else instead.remedy(report.rules)


def _refuse_argument_of_policy(node: ast.Call, argument: str, report: Report) -> None:
    """Refuse an argument of ``%policy``: the host narrows, for cells that do nothing else."""
    why = "%policy takes no argument: it shows the policy"
    remedy = "Write %policy alone; or %policy narrow timeout=10, in a cell of its own."
    if argument.split(maxsplit=1)[0] == NARROWS:
        why = "the policy is narrowed before a cell runs, so %policy narrow stands alone"
        remedy = "Put %policy narrow into a cell of its own, with nothing else in it."
    report.add("argument-not-allowed", node, f"%policy {argument}", why=why, remedy=remedy)


def without_comment(line: str) -> str:
    """Return the argument of a line magic that takes no code, without a comment."""
    return line.partition("#")[0].strip()


def _check_lookup(node: ast.Call, line: str, report: Report) -> None:
    """Judge the argument of a magic that looks up names."""
    if not _LOOKUP_ARGUMENT.fullmatch(line):
        report.add("argument-not-allowed", node, line, why="is more than the name of an object")
        return
    for name in _IDENTIFIER.findall(line):
        refused = name in RESERVED or name in REFUSED_BUILTINS
        if not is_free(name) or (refused and name.startswith("__")):
            report.add("argument-not-allowed", node, name, why="names interpreter internals")


def _check_code(node: ast.Call, name: str, line: str, report: Report) -> None:
    """Judge the code in a line magic's argument, which may begin with options."""
    if name == "prun" and _FILE_OPTIONS.search(line):
        report.add("argument-not-allowed", node, line, why="writes files, with -D and -T")
        return
    shift = report.shift + node.lineno - 1
    parsed = False
    seen = set()
    for candidate in code_candidates(line):
        parsed = parsed or _parses(candidate)
        for finding in report.nested(candidate, report.rules, shift):
            if (finding.rule, finding.subject) not in seen:
                seen.add((finding.rule, finding.subject))
                report.findings.append(finding)
    if not parsed:
        why = "is not code that can be read apart from the magic's options"
        report.add("argument-not-allowed", node, f"%{name} {line}", why=why)


def code_candidates(line: str) -> Iterator[str]:
    """Yield the whole argument, and the rest of it after each word that may belong to an option.

    The magic's own option parser decides which of these is the code. All of them are judged.
    """
    yield line.strip()
    start, after_option = 0, False
    for _ in range(_MAX_OPTIONS):
        match = _WORD.match(line, start)
        is_option = match is not None and match[0].strip().startswith("-")
        if match is None or not (is_option or after_option):
            return
        start, after_option = match.end(), is_option
        yield line[start:].strip()


def _parses(source: str) -> bool:
    try:
        parse(transform_as_ipython(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def may_configure(rules: Rules, kind: str, trait: str, value: object) -> bool:
    """Return whether a trait may be set, by ``%config`` or by the one who starts the kernel."""
    return not rules.language or CONFIG.fullmatch(f"{kind}.{trait} = {value!r}") is not None
