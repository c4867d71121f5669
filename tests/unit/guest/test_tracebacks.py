"""What is left of a traceback, and what is said when it can't be made."""

import linecache
import re
import traceback
from fractions import Fraction

import pytest
from IPython.core.ultratb import AutoFormattedTB

from cellblock.guest import tracebacks
from cellblock.wire import frames, messages


def raised(action):
    try:
        action()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError


def files(error):
    return {frame.filename for frame in traceback.extract_tb(error.__traceback__)}


def ours():
    """Raise through a frame of cellblock's."""
    frames.encode(messages.Display(data={"a/b": object()}))


def table_of_no_lines(units):
    """Say "no place" of a code's `units` (instructions of two bytes), eight of them in an entry.

    As many as there are: CPython believes the table, reads past the end of a shorter one, and under a tracer
    writes past the end of its own array for a longer one.
    """
    entries, rest = divmod(units, 8)
    return b"\xff" * entries + (bytes([0xF8 | rest - 1]) if rest else b"")


def test_frames_of_ours_go_and_the_users_stay_in_causes_too():
    error = raised(ours)
    assert any("cellblock/wire" in name for name in files(error))
    assert files(tracebacks.trim(error)) == {__file__}

    def chained():
        try:
            ours()
        except BaseException as cause:
            raise ValueError("second") from cause

    error = tracebacks.trim(raised(chained))
    assert files(error.__cause__) == {__file__}


def test_frames_of_libraries_are_left_out_for_a_while_and_causes_that_have_no_others():
    def chained():
        try:
            try:
                Fraction("a")
            except ValueError:
                Fraction("b")
        except ValueError as cause:
            raise OSError("mine") from cause

    error = raised(chained)
    earlier = error.__cause__
    before = traceback.format_exception(error)
    # As where a library has raised from what another raised, without a frame of the user's.
    hidden = raised(lambda: Fraction("c"))
    hidden.__traceback__ = hidden.__traceback__.tb_next.tb_next
    earlier.__context__, hidden.__context__ = hidden, earlier.__context__
    with tracebacks.folded(error, error.__traceback__) as (own, left_out):
        assert [frame.name for frame in traceback.extract_tb(own)] == ["raised", "chained"]
        assert error.__cause__ is earlier
        assert earlier.__context__ not in (hidden, None)
        assert files(earlier) == {__file__}
        assert left_out == 3
    assert (earlier.__context__, earlier.__context__.__context__ is None) == (hidden, False)
    earlier.__context__ = hidden.__context__
    assert traceback.format_exception(error) == before


def test_an_instruction_of_no_line_costs_no_traceback():
    """An interrupt may hit one."""

    def users():
        raise KeyboardInterrupt

    code = users.__code__
    users.__code__ = code.replace(co_linetable=table_of_no_lines(len(code.co_code) // 2))
    assert list(users.__code__.co_lines())[-1][1] == len(code.co_code)
    error = raised(users)
    assert error.__traceback__.tb_next.tb_lineno is None
    tracebacks.trim(error)
    assert error.__traceback__.tb_next.tb_lineno == code.co_firstlineno


def test_a_chain_that_bites_its_tail_or_has_no_end_is_cut():
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first
    assert tracebacks.trim(first) is first

    error = ValueError("0")
    for n in range(10_000):
        error.__cause__ = None
        following = ValueError(str(n))
        following.__context__ = error
        error = following
    assert tracebacks.trim(error) is error


def test_a_message_that_fails_is_replaced():
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    assert tracebacks.describe(MuteError()) == "<the message could not be formatted>"
    assert tracebacks.describe(ValueError("said")) == "said"


def test_a_group_anywhere_in_the_chain_is_shown_with_its_members():
    group = ExceptionGroup("many", [ValueError("inner")])
    outer = TypeError("outer")
    outer.__cause__ = group
    assert tracebacks.is_pythons(outer)
    text = "\n".join(tracebacks.by_python(outer, None))
    assert "inner" in text
    assert "outer" in text


AFTER_THE_ERROR = {
    "try:\n    1 / 0\nfinally:\n    x = 1\n": [[2]],
    "def f():\n    try:\n        1 / 0\n    finally:\n        x = 1\nf()\n": [[6, 3]],
    "try:\n    1 / 0\nexcept Exception as e:\n    raise ValueError from e\n": [[4], [2]],
    "try:\n    1 / 0\nexcept Exception as e:\n    x = 1\n    raise KeyError\n": [[5], [2]],
    "try:\n    1 / 0\nexcept Exception as e:\n    x = 1\n    raise e\n": [[5, 2]],
    "def f():\n    x = 1\n    return sum(1 / 0 for y in 'a')\nf()": [[4, 3, 3]],
    "def f():\n    x = 1\n    return sum(\n        1 / 0\n        for y in 'a')\nf()": [[6, 3, 4]],
    "def f():\n    pass\nclass A:\n    x = 1\n    1 / 0\n": [[3, 5]],
    "def f():\n    pass\nx = 1\nf = (lambda y:\n    1 / 0)\nf(1)": [[6, 5]],
}


@pytest.mark.parametrize("source", AFTER_THE_ERROR)
def test_a_traceback_says_where_an_error_was_raised_not_where_its_frame_went_on(source):
    formatter = AutoFormattedTB(mode="Context", theme_name="nocolor")
    formatter.get_records = tracebacks.with_lines_of_errors(formatter.get_records)
    name = "/no/such/folder/1.py"  # as a cell has one
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    error = raised(lambda: exec(compile(source, name, "exec"), {}))
    found = []
    for one in tracebacks.chain(error):
        tb = one.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename != name:
            tb = tb.tb_next
        lines = "\n".join(formatter.structured_traceback(type(one), one, tb))
        own = re.split(r"exception(?: was|, another)", lines)[-1]
        marked = re.findall(r"^-+> (\d+) ?(.*)", own, re.MULTILINE)
        assert all(source.splitlines()[int(line) - 1] == text for line, text in marked)
        found.append([int(line) for line, _ in marked])
    assert found == AFTER_THE_ERROR[source]
