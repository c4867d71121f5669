"""Tomorrow's syntax does not widen today's policy."""

import ast
from pathlib import Path

from cellblock.analysis import analyser
from cellblock.analysis.analyser import CHILDREN, walk
from cellblock.analysis.findings import Report
from unit.analysis.rules_for_tests import SAFE

#: Neither statements nor expressions of a cell: other entry points, contexts, deprecated names.
NOT_IN_CELLS = {
    "AST",
    "AugLoad",
    "AugStore",
    "Bytes",
    "Del",
    "Ellipsis",
    "ExtSlice",
    "FunctionType",
    "Index",
    "Interactive",
    "Interpolation",  # of template strings (3.14), which mode safe does not know yet
    "Load",
    "NameConstant",
    "Num",
    "Param",
    "Store",
    "Str",
    "Suite",
    "TemplateStr",
    "TypeIgnore",
    "alias",
}


def every_node_type():
    kinds = (getattr(ast, name) for name in dir(ast))
    return {k for k in kinds if isinstance(k, type) and issubclass(k, ast.AST)}


def test_every_node_of_this_python_is_in_the_table_or_left_out_knowingly():
    abstract = {k for k in every_node_type() if k.__subclasses__() and not k._fields}
    missing = {k.__name__ for k in every_node_type() - set(CHILDREN) - abstract} - NOT_IN_CELLS
    assert missing == set()


def test_an_unknown_node_and_an_unknown_operator_are_refused():
    class Teleport(ast.expr):
        _fields = ()

    node = Teleport(lineno=1, col_offset=0, end_lineno=1, end_col_offset=8)
    report = Report("teleport", SAFE)
    walk(ast.Module([ast.Expr(node)], []), report, {})
    assert [(f.rule, f.subject) for f in report.findings] == [("node-not-allowed", "Teleport")]

    class Spaceship(ast.operator):
        _fields = ()

    one = ast.Constant(1, lineno=1, col_offset=0, end_lineno=1, end_col_offset=1)
    report = Report("1 <=> 1", SAFE)
    walk(ast.BinOp(one, Spaceship(), one), report, {})
    assert [f.subject for f in report.findings] == ["Spaceship"]


def test_a_node_that_grew_a_field_is_refused(monkeypatch):
    monkeypatch.setattr(ast.Call, "_fields", (*ast.Call._fields, "surprise"))
    assert ast.Call not in analyser._rows()
    assert ast.Name in analyser._rows()


def test_the_fields_walked_are_all_that_hold_nodes():
    for node in ast.walk(ast.parse(Path(ast.__file__).read_text("utf-8"))):
        if type(node) not in CHILDREN:
            continue
        held = {
            name
            for name, value in ast.iter_fields(node)
            if isinstance(value, ast.AST)
            or (isinstance(value, list) and value and isinstance(value[0], ast.AST))
        }
        assert held - {"ctx", "names"} <= set(CHILDREN[type(node)])
