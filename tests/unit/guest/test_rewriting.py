"""What a class pattern reads: what was checked, of what is one of the class's own."""

import ast
import builtins
import textwrap

import pytest

from cellblock.guest.rewriting import CALLED, compiled
from cellblock.guest.violations import AttributeViolation

#: Whatever is asked whether it is a ``Anything`` is one.
CLAIMS = """
    class Claims(type):
        def __instancecheck__(cls, instance): return True
    class Anything(metaclass=Claims): pass
"""


def run(program):
    """Run a program that is rewritten; return its namespace."""
    space = {"__name__": "__main__", "__builtins__": {**vars(builtins), **CALLED}}
    exec(compiled(ast.parse(textwrap.dedent(CLAIMS) + textwrap.dedent(program)), "<cell>"), space)
    return space


def test_a_class_that_raises_is_evaluated_once():
    with pytest.raises(ValueError, match="first"):
        run("""
            class Case:
                read = 0
                @property
                def C(self):
                    Case.read += 1
                    if Case.read == 1: raise ValueError("first")
                    return Anything
            case = Case()
            match "text":
                case case.C(format=f): pass
        """)


def test_a_class_that_raises_raises_where_a_match_comes_to_it():
    space = run("""
        match 1:
            case int(): found = 1
            case Missing(format=f): found = 2
    """)
    assert space["found"] == 1


@pytest.mark.parametrize(
    "program",
    [
        "class P: pass\nclass Q(str, P): pass\nmatch Q():\n    case P(format=f): pass",
        "class E(AttributeError): pass\nmatch E():\n    case E(obj=o): pass",
        "match 'text':\n    case str(format=f): pass",
        "class S(str): __match_args__ = 'format',\nmatch S():\n    case S(f): pass",
    ],
)
def test_what_the_library_has_by_a_settled_name_is_not_read(program):
    with pytest.raises(AttributeViolation):
        run(program)


def test_what_only_says_that_it_is_one_does_not_match_where_a_settled_name_is_read():
    space = run("""
        found = None
        match "text":
            case Anything(format=f): found = f
    """)
    assert space["found"] is None


def test_settled_names_are_read_where_cells_have_them_and_unread_ones_do_not_count():
    space = run("""
        class Error(Exception):
            __match_args__ = ("line", "obj")
            def __init__(self): self.line, self.obj = 1, 2
        class Text(str):
            __match_args__ = ("size", "format")
            size = 3
        match Error():
            case Error(a, b): pass
        match Error():
            case Error(obj=c): pass
        match Text():
            case Text(d): pass
    """)
    assert [space[name] for name in "abcd"] == [1, 2, 2, 3]
