"""Where a policy has its user asked, a program is nobody to ask: what takes consent is refused."""

from pathlib import Path

import pytest

from cellblock import Policy, Sandbox, SandboxPool
from cellblock.errors import PolicyError
from cellblock.host.consent import store
from cellblock.host.services.tools.calls import NOBODY_ASKED
from cellblock.policy import paths as placing
from cellblock.policy.load import check_policy


def add(a: int) -> int:
    """Add one."""
    return a + 1


@pytest.fixture(scope="module")
def pool(asking_policy, home):
    with SandboxPool(asking_policy, project=home / "project", tools=[add]) as made:
        yield made


@pytest.fixture
def sandbox(pool):
    """A sandbox whose program would say yes to whatever a cell asks."""
    with pool.sandbox(input=lambda _prompt: "always") as one:
        yield one


def test_an_import_that_takes_consent_is_denied_with_the_reason(sandbox):
    r = sandbox.execute("import bz2")
    assert (r.status, [one.rule for one in r.denials]) == ("denied", ["import-not-allowed"])
    assert r.denials[0].remedy == "Approve it where you can be asked."
    assert r.denials[0].allows == ('add.allowed_modules = ["bz2"]',)
    assert "there a person is asked, if one can be.\n\nThe operator can allow it" in r.to_string()
    assert sandbox.execute("import math\nmath.pi > 3").result == "True"


@pytest.mark.parametrize("call", ["add(1)", "ops.read_file('a.txt')"])
def test_a_call_is_refused_with_the_reason(sandbox, call):
    r = sandbox.execute(call)
    name = call.partition("(")[0]
    assert r.error.message == f"{name}: NotApproved: {NOBODY_ASKED}"
    assert "Do without this call; the operator can allow it" in r.error.message
    assert [(one.status, one.error[0]) for one in r.tool_calls] == [("refused", "NotApproved")]
    assert sandbox.execute("input('Name? ')").result == "'always'"


def test_what_a_kernels_user_allowed_for_always_is_not_for_programs(asking_policy, home, pool):
    project = home / "project"
    digest = check_policy(asking_policy, project=project, allow_unsafe=False).digest()
    made = [store.record("call", "ops.read_file", digest), store.record("import", "bz2", digest)]
    place = store.of_user().answers(str(project.resolve()), asking_policy.name)
    place.change(lambda _before: made)
    with pool.sandbox() as s:
        # It is the same policy, whose kernels would ask no more.
        prepare = s._sandbox._config.prepare
        assert placing.without_scratch(s.policy, Path(prepare.scratch)).digest() == digest
        assert s.execute("import bz2").status == "denied"
        assert "NotApproved" in s.execute("ops.read_file('a.txt')").error.message


def test_what_has_to_be_asked_for_takes_the_programs_own_word(home):
    assert home
    asking = Policy.preset("unsafe", approvals="prompt")
    with pytest.raises(PolicyError) as raised:
        Sandbox(asking).open()
    assert (
        raised.value.remedy
        == "Pass allow_unsafe=True, or choose a policy of mode confined or safe."
    )
    with Sandbox(asking, allow_unsafe=True) as s:
        assert s.execute("import os\nos.getpid() > 0").result == "True"
