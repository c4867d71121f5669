"""The rules of preset safe, and short forms to ask with."""

from cellblock.analysis import Rules, analyse, transform
from cellblock.analysis.allowlist import MODULES, SCIENCE
from cellblock.policy.load import preset_policy

SAFE = Rules(
    language=True,
    modules=MODULES,
    raw_modules=frozenset(),
    magics=frozenset(preset_policy("data").magics),
    operations=frozenset(
        {"ops.read_file", "ops.write_file", "ops.list_dir", "ops.http", "ops.install", "llm"}
    ),
)
DATA = Rules(
    language=True,
    modules=MODULES,
    raw_modules=frozenset(SCIENCE),
    magics=frozenset(preset_policy("data").magics),
)


def findings(cell, rules=SAFE):
    return analyse(transform(cell).source, rules)


def rule_ids(cell, rules=SAFE):
    return [finding.rule for finding in findings(cell, rules)]


def places(cell, rules=SAFE):
    return [(f.rule, f.line, f.column, f.subject) for f in findings(cell, rules)]
