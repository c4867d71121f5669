"""What a cell asks of the policy, when it asks for nothing else."""

import pytest

from cellblock.analysis import Rules
from cellblock.errors import PolicyError
from cellblock.policy import narrow_requests
from cellblock.policy.model import Policy

RULES = Rules(True, {}, frozenset(), frozenset({"policy"}))


@pytest.mark.parametrize(
    "source",
    [
        "%policy narrow timeout=1",
        "  %policy \t narrow\ttimeout=1  # why\n\n# and\n%policy narrow network_access=false\r\n",
        "%policy narrow",
        "%policy narrow import os",
    ],
)
def test_a_cell_of_nothing_but_narrowings_is_the_hosts(source):
    assert narrow_requests.is_narrow_cell(source)


X = [
    "%policy",
    "%policy narrowed timeout=1",
    "%policy Narrow timeout=1",
    "%%policy narrow timeout=1",
    "policy narrow timeout=1",
    "# %policy narrow timeout=1",
    "%policy narrow timeout=1\nx = 1",
    "x = 1\n%policy narrow timeout=1",
    "if x:\n    %policy narrow timeout=1",
    '"""\n%policy narrow timeout=1\n"""',
    "%%time\n%policy narrow timeout=1",
    "%time %policy narrow timeout=1",
    "%policy narrow timeout=1 \\\n    network_access=false",
    ">>> %policy narrow timeout=1",
    "get_ipython().run_line_magic('policy', 'narrow timeout=1')",
    "%policy\xa0narrow timeout=1",
]


def test_whatever_else_a_cell_says_it_is_not():
    for source in X:
        assert not narrow_requests.is_narrow_cell(source), source


def read(source):
    asked, findings = narrow_requests.read_cell(source, RULES)
    found = [(f.rule, f.line, f.column, f.end_column, f.subject, f.why) for f in findings]
    return asked, found


def test_lines_are_one_change_and_each_key_knows_its_place():
    asked, found = read(
        "# less\n%policy narrow timeout=1 --fresh\n"
        '%policy narrow add.require=["timeout"] tool_timeouts.fetch=2 tool_timeouts.put=3'
    )
    assert found == []
    assert asked.fresh
    assert asked.changes == {
        "timeout": 1,
        "add": {"require": ["timeout"]},
        "tool_timeouts": {"fetch": 2, "put": 3},
    }
    assert asked.places["timeout"] == (2, 15, 22)
    assert asked.places["add.require"] == (3, 15, 26)


ARGUMENT = "argument-not-allowed"


@pytest.mark.parametrize(
    ("source", "found"),
    {
        "%policy narrow": [
            (1, 8, 14, "narrow", "%policy narrow says nothing of what is to be narrowed")
        ],
        "%policy narrow # x": [
            (1, 8, 14, "narrow", "%policy narrow says nothing of what is to be narrowed")
        ],
        "%policy narrow timeout": [
            (1, 15, 22, "timeout", "'timeout' is neither key=value nor an option")
        ],
        "%policy narrow timeout=1\u2028import os": [
            (1, 24, 25, "\u2028", r"'\u2028' is neither key=value nor an option")
        ],
        "%policy narrow timeout=1\x0c%policy narrow": [
            (1, 24, 25, "\x0c", r"'\x0c' is neither key=value nor an option")
        ],
        "%policy narrow a=1\n%policy narrow a=2": [(2, 15, 16, "a", "'a' is said twice")],
        "%policy narrow a.b=1 a=2": [(1, 21, 22, "a", "'a' is said twice")],
        "%policy narrow a=2 a.b=1": [(1, 19, 22, "a.b", "'a.b' is said twice")],
        "%policy narrow a.b=1 a.b=1": [(1, 21, 24, "a.b", "'a.b' is said twice")],
        "%policy narrow timeout=ten": [(1, 23, 26, "ten", "'ten' is no TOML value, for timeout")],
        "%policy narrow timeout=": [(1, 22, 23, "=", "'=' has no value behind it, for timeout")],
        "%policy narrow ports=[1": [(1, 21, 22, "[", "'[' is not closed on this line, for ports")],
        "%policy narrow --force a=1": [(1, 14, 26, "--force", "there is no option --force")],
        "%policy narrow a=1\n" * 51: [
            *[(n, 15, 16, "a", "'a' is said twice") for n in range(2, 51)],
            (1, 8, 14, "narrow", "%policy narrow is there more than 50 times"),
        ],
    }.items(),
)
def test_what_can_not_be_read_is_found_where_it_stands(source, found):
    assert read(source)[1] == [(ARGUMENT, *one) for one in found]


@pytest.mark.parametrize(
    ("less", "kept"),
    [
        ({"timeout": 1.0}, True),
        ({"network_access": False}, True),
        ({"network_access": ("a.test:1",)}, False),
        ({"allowed_modules": ()}, False),
        ({"timeout": 1.0, "env_var_access": ()}, False),
    ],
)
def test_what_a_guest_is_made_of_takes_a_new_one(less, kept):
    before = Policy(
        network_access=True, allowed_modules=("numpy",), env_var_access=("X",), timeout=2.0
    )
    after = before.replace(**less)
    if kept:
        narrow_requests.check_keeps_guest(before, after)
        return
    with pytest.raises(PolicyError, match="takes a new guest, and your variables would be gone"):
        narrow_requests.check_keeps_guest(before, after)
