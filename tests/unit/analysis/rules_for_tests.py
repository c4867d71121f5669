"""The rules of preset safe, those with the group @science, and short forms to ask with."""

from cellblock.analysis import (
    Rules,
    analyse,
    default_modules,
    transform,
)
from cellblock.policy.groups import MEMBERS
from cellblock.policy.load import preset_policy

SAFE = Rules(
    language=True,
    modules=default_modules("safe"),
    raw_modules=frozenset(),
    magics=frozenset((*preset_policy("safe").magics, "matplotlib")),
    operations=frozenset(
        {"ops.read_file", "ops.write_file", "ops.list_dir", "ops.http", "ops.install", "llm"}
    ),
)
SCIENCE = Rules(
    language=True,
    modules=default_modules("data"),
    raw_modules=MEMBERS,
    magics=frozenset((*preset_policy("safe").magics, "matplotlib")),
)


def findings(cell, rules=SAFE):
    return analyse(transform(cell).source, rules)


def rule_ids(cell, rules=SAFE):
    return [finding.rule for finding in findings(cell, rules)]


def places(cell, rules=SAFE):
    return [(f.rule, f.line, f.column, f.subject) for f in findings(cell, rules)]
