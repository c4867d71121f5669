"""What ``%policy narrow`` takes on its line, and that nothing else can be said there."""

import datetime as dt

import pytest

from cellblock.policy.narrow_requests import MAX_LINE, Assignment, UnreadableError, read_line


def pairs(line):
    return {one.key: one.value for one in read_line(line)[0]}


@pytest.mark.parametrize(
    ("line", "found"),
    {
        "": {},
        "   # nothing": {},
        "timeout=10": {"timeout": 10},
        "timeout = 1.5  network_access\t=false, display='text'": {
            "timeout": 1.5,
            "network_access": False,
            "display": "text",
        },
        "filesystem_write_roots=[]": {"filesystem_write_roots": []},
        'a=["{scratch}", "b c", "d#e"]  # why': {"a": ["{scratch}", "b c", "d#e"]},
        r'a="say \"b\" = c"': {"a": 'say "b" = c'},
        "a=[[1, [2]], '}']": {"a": [[1, [2]], "}"]},
        'tool_timeouts={fetch=5, "x y"=1}': {"tool_timeouts": {"fetch": 5, "x y": 1}},
        'add.read_deny_paths=["x"]': {"add.read_deny_paths": ["x"]},
        "timeout=1979-05-27": {"timeout": dt.date(1979, 5, 27)},
    }.items(),
)
def test_a_line_holds_keys_with_toml_values(line, found):
    assert pairs(line) == found


@pytest.mark.parametrize("value", ["{" + ".".join("a" * 9_900) + "=1}", f"[0x{'f' * 5_000}]"])
def test_a_value_that_nobody_can_write_down_is_none(value):
    with pytest.raises(UnreadableError, match="is no TOML value"):
        read_line(f"timeout={value}")


def test_keys_have_their_place_each_time_and_options_are_words_of_their_own():
    assert read_line("%policy narrow  timeout=1", 14)[0] == (Assignment("timeout", 1, 16, 23),)

    assert [one.value for one in read_line("timeout=1 timeout=100")[0]] == [1, 100]

    assert read_line("--fresh timeout=1")[1] == {"fresh"}
    assert read_line("timeout=1, --fresh")[1] == {"fresh"}


@pytest.mark.parametrize(
    ("line", "what", "span"),
    [
        ("timeout", "is neither key=value nor an option", (0, 7)),
        ("timeout=", "has no value behind it", (7, 8)),
        ("timeout 10", "is neither key=value nor an option", (0, 7)),
        ("=10", "is neither key=value nor an option", (0, 3)),
        ("a.b.c=1", "is neither key=value nor an option", (0, 7)),
        ("timeout=10 20", "is neither key=value nor an option", (11, 13)),
        ("--Fresh", "is neither key=value nor an option", (0, 7)),
        ("--fresh=1", "is neither key=value nor an option", (0, 9)),
        ("ｔimeout=1", "is neither key=value nor an option", (0, 9)),  # noqa: RUF001
        ("[policy]", "is neither key=value nor an option", (0, 8)),
        ('a="""b"""', "is neither key=value nor an option", (4, 9)),
        ("a=[1]b=2", "is neither key=value nor an option", (5, 8)),
        ("a=1;import os", "is no TOML value", (2, 10)),
        ("timeout=ten", "is no TOML value", (8, 11)),
        ("timeout=1e", "is no TOML value", (8, 10)),
        ("a=[1 2]", "is no TOML value", (2, 7)),
        ("a=[1\x0c]", "is no TOML value", (2, 6)),
        ("a=['\u2028']", "is no TOML value", (2, 7)),
        ("a='b\x00'", "is no TOML value", (2, 6)),
        ("a=['\ud800']", "is no TOML value", (2, 7)),
        ("a=[{b=1}", "is not closed on this line", (2, 3)),
        ("a=[" * 5_000, "is no TOML value", None),
        ("a=" + "9" * 10_000, "is no TOML value", None),
        ("a=" + "[" * 9_000 + "]" * 9_000, "is no TOML value", None),
        ("x" * (MAX_LINE + 1), "is longer than 20,000 characters", (0, 1)),
    ],
)
def test_what_is_neither_is_refused_where_it_stands(line, what, span):
    with pytest.raises(UnreadableError) as raised:
        read_line(line)
    assert raised.value.message in {what, "is not closed on this line"}
    assert span is None or (raised.value.column, raised.value.end) == span


@pytest.mark.parametrize(
    ("python", "toml"), [("True", "true"), ("False", "false"), ("None", '"none"')]
)
def test_pythons_words_are_told_in_tomls(python, toml):
    with pytest.raises(UnreadableError) as raised:
        read_line(f"timeout={python}")
    assert raised.value.remedy == f"{toml}, as TOML has it."
