"""A field is one row: whatever goes through fields finds what it needs of one there."""

import pytest

from cellblock.backends.base import ORDER, named, unprobed
from cellblock.backends.noop import Noop
from cellblock.backends.plan import GUEST_LIMITS
from cellblock.backends.report import gaps
from cellblock.errors import PolicyError
from cellblock.policy import model, schema
from cellblock.policy.load import preset_values
from cellblock.policy.model import ROWS, Policy
from cellblock.policy.narrowing import wider
from cellblock.policy.rows import EnforcedBy, Narrower, Never, Row, Shown, Way, row, rows_of
from cellblock.policy.vocabulary import PRESETS
from cellblock.render.policy_card import policy_table
from cellblock.wire.messages import RLIMITS

SUPPORT = unprobed("for a test", usable=True)


def test_a_limit_is_a_row_and_the_resource_limit_that_carries_it():
    """Of ``stack_max_bytes`` nothing else is said anywhere."""
    policy = Policy().replace(stack_max_bytes=2**21)

    described = schema.json_schema()["properties"]["stack_max_bytes"]
    assert described["anyOf"][0] == {"type": "integer", "minimum": 2**20, "maximum": 2**53}
    with pytest.raises(PolicyError, match="stack_max_bytes: wrong value"):
        schema.parse({"stack_max_bytes": 1}, file="mine")
    assert all("stack_max_bytes" not in preset_values(name) for name in PRESETS)

    assert wider("stack_max_bytes", policy, Policy()) == '"none" is more than 2097152'
    assert not wider("stack_max_bytes", Policy(), policy)

    assert "stack_max_bytes" in GUEST_LIMITS
    declared = {name: named(name).declare(policy, SUPPORT)["stack_max_bytes"] for name in ORDER}
    assert {name for name, each in declared.items() if each.mechanism == "RLIMIT_STACK"} == {
        "docker",
        "bubblewrap",
        "landlock",
    }

    found = {gap.capability: gap for gap in gaps(policy, Noop().declare(policy, SUPPORT))}
    assert found["stack_max_bytes"].consequence == "a cell's recursion can take a larger stack"
    assert found["stack_max_bytes"].remedy.startswith("use Linux 5.13 or later")
    assert "stack_max_bytes" not in {
        gap.capability for gap in gaps(Policy(), Noop().declare(Policy(), SUPPORT))
    }

    card = policy_table(policy.as_dict(), tuple(declared.values())[:1], ())["text/plain"]
    assert "stack_max_bytes            2 MiB" in card


@pytest.mark.parametrize(
    ("granted", "shown"),
    [
        ({}, []),
        ({"ops": {"read_file": {"roots": ["{project}"]}}}, ["tool_max_calls", "tool_max_bytes"]),
        ({"tools": ["math:sqrt"]}, ["tool_timeout", "tool_max_calls", "tool_max_bytes"]),
    ],
)
def test_limits_on_calls_are_shown_where_cells_can_call_something(granted, shown):
    table = policy_table(schema.parse(granted, file="mine").as_dict(), (), ())["text/plain"]
    names = ("tool_timeout", "tool_max_calls", "tool_max_bytes")
    assert [name for name in names if f"  {name} " in table] == shown


def test_whatever_carries_a_limit_of_guests_has_a_row_with_a_gap_that_more_locks_narrow():
    assert set(RLIMITS) <= set(GUEST_LIMITS) <= set(model.DECLARED) & set(model.OPTIONAL_FIELDS)
    assert {ROWS[name].enforced_by for name in GUEST_LIMITS} == {model.LOCKS}


def test_a_field_without_a_row_fails_when_the_class_is_defined():
    @model.dataclass
    class WithARow:
        depth: int = row(3, narrower=Way.lower)

    @model.dataclass
    class Without(WithARow):
        width: int = 4

    assert rows_of(WithARow) == {"depth": Row(narrower=Way.lower)}
    with pytest.raises(KeyError):
        rows_of(Without)


def test_what_a_row_says_is_of_the_type_that_its_readers_take():
    for name, each in ROWS.items():
        assert isinstance(each.narrower, Narrower), name
        assert isinstance(each.enforced_by, EnforcedBy), name
        assert isinstance(each.shown, Shown), name


def test_a_row_has_words_of_a_gap_or_what_the_host_does_and_not_both():
    assert [name for name, each in ROWS.items() if each.gap and each.host] == []


def test_what_is_never_narrowed_is_no_capability_of_the_guests_but_its_snapshots():
    never = {name for name in model.DECLARED if isinstance(ROWS[name].narrower, Never)}
    assert never == {"snapshots"}
