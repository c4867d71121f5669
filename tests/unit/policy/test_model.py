"""The policy's own promises: frozen, digested, documented."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.errors import PolicyError
from cellblock.policy import schema
from cellblock.policy.model import CAPABILITIES, DECLARED, FIELDS, LISTS, OPTIONAL_FIELDS, Policy


def test_a_policy_is_frozen_and_toml_values_become_the_types_of_record():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().timeout = 3

    parsed = schema.parse({"timeout": 5, "network_access": ["a:1"]}, file="x")
    assert parsed.timeout == 5.0
    assert isinstance(parsed.timeout, float)
    assert parsed.network_access == ("a:1",)


def test_limits_are_the_fields_that_may_be_none_and_lists_those_that_hold_tuples_only():
    fields = dataclasses.fields(Policy)
    assert tuple(f.name for f in fields if "None" in str(f.type)) == OPTIONAL_FIELDS
    lists = tuple(f.name for f in fields if isinstance(f.default, tuple))
    assert tuple(name for name in lists if name != "ports") == LISTS  # it may be "any"


def test_what_the_host_alone_enforces_has_a_status_and_no_gap():
    assert set(DECLARED) < set(CAPABILITIES)
    assert [name for name in CAPABILITIES if name not in DECLARED] == [
        "credentials",
        "port_hosts",
        "display",
        "widget_modules",
        "comm_targets",
        "timeout",
        "stdout_max_bytes",
        "stderr_max_bytes",
        "display_max_bytes",
        "undo_max_bytes",
        "forks_max_bytes",
        "output_kept_max_bytes",
        "artifact_max_bytes",
        "artifacts_max_bytes",
    ]


def test_the_digest_tells_policies_apart_and_equal_ones_together():
    assert Policy().digest() == Policy().replace().digest()
    one_changed = {Policy().replace(**{field: "changed"}).digest() for field in FIELDS}
    assert len(one_changed) == len(FIELDS)


def test_the_schema_documents_every_field_with_its_default():
    described = schema.json_schema()
    assert described["additionalProperties"] is False
    assert tuple(described["properties"]) == FIELDS
    for name, field in described["properties"].items():
        assert field["description"].strip(), name
        assert "default" in field, name


@pytest.mark.parametrize("tool", ["policy_docs.py", "enforcement_docs.py", "rules_docs.py"])
def test_a_page_of_the_docs_is_made_from_what_the_code_declares(tool):
    root = Path(schema.__file__).parents[3]
    if not (root / "docs").exists():
        pytest.skip("an installed package has no docs")
    command = [sys.executable, str(root / "tools" / tool), "--check"]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"timeout": -1}, "mine: timeout: wrong value"),
        ({"tiemout": 1}, "mine: tiemout: no such key"),
        ({"ops": {"read_file": {"rots": ["/"]}}}, "ops.read_file.rots: no such key"),
        ({"add": {"mode": ["x"]}}, "add.mode: can't be added"),
    ],
    ids=["value", "key", "section", "add"],
)
def test_a_preset_changed_by_a_program_is_checked_as_a_file_is(changes, why):
    with pytest.raises(PolicyError, match=re.escape(why)):
        Policy.preset("safe", name="mine", **changes)


def test_a_program_adds_to_a_presets_lists():
    made = Policy.preset("safe", add={"allowed_modules": ["pytest"]})
    assert made.allowed_modules == (*Policy.preset("safe").allowed_modules, "pytest")
