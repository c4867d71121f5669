"""Templates in a guest: definitions in a namespace of their own, started with data."""

from __future__ import annotations

import ast
import linecache
from typing import TYPE_CHECKING, Final

from cellblock.analysis.admission import ENTRY, entry

if TYPE_CHECKING:
    from cellblock.analysis import Finding
    from cellblock.wire import messages

#: The file of the call that starts one: the kernel's own, which tracebacks leave out.
CALL: Final = __file__
#: What the state is called where it is handed on; no template's name, as it is none of Python's.
STATE: Final = "state of the cell"


def refused(request: messages.Execute) -> tuple[Finding, ...]:
    """Return what keeps a template from being one: judged here again, as cells are."""
    from cellblock.analysis.template_rules import definitions  # noqa: PLC0415 - few policies have any

    return (*definitions(request.source), *entry(request.source))


def remember(name: str, source: str) -> str:
    """Return the file name that tracebacks give a template's lines, and have them be found."""
    file = f"<template {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    return file


def start_call(tree: ast.Module, *, show: bool) -> ast.AST:
    """Return the tree that calls ``run`` with the state, and awaits it if that is asynchronous."""
    load = ast.Load()
    call: ast.expr = ast.Call(ast.Name(ENTRY, load), [ast.Name(STATE, load)], [])
    defined = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    if any(node.name == ENTRY for node in defined):
        call = ast.Await(call)
    line: list[ast.stmt] = [ast.Expr(call)]
    started = ast.Interactive(line) if show else ast.Module(line, [])
    return ast.fix_missing_locations(started)
