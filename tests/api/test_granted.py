"""What policies grant beyond Python reaches sandboxes as it reaches kernels, and so do refusals."""

import json

import nbformat
import pytest

from cellblock import Policy, Sandbox, SandboxPool
from cellblock.errors import ExchangeError, PolicyError
from cellblock.host.consent import review, store
from cellblock.policy import load
from support.endpoint import KEY, Endpoint
from support.servers import Site
from support.wheels import Index

ALL = "add(1), ops.read_file('a.txt'), str(llm('say yes'))"
FINE = "x = 'fine'\nx"


def add(a: int) -> int:
    """Add one."""
    return a + 1


@pytest.fixture(scope="module")
def server():
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture(scope="module")
def policy(home, server):
    """Operations in the project's folder, and a language model."""
    (home / "project" / "a.txt").write_text("text")
    return Policy.preset(
        "safe",
        name="granting",
        timeout=120.0,
        tool_timeout=60.0,
        ops={
            "read_file": {"roots": ["{project}"]},
            "write_file": {"roots": ["{project}"], "max_total_bytes": 5_000},
        },
        llm={"base_url": server.base_url, "models": ["small"], "key_env": "LAB_KEY"},
    )


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("LAB_KEY", KEY)


# --- tools, operations, models ----------------------------------------------------------------


def test_one_cell_calls_functions_operations_and_models_and_all_are_told_of(policy):
    pytest.importorskip("openai")
    with Sandbox(policy, project=".", tools=[add]) as s:
        r = s.execute(ALL)
        assert r.result == "(2, 'text', 'yes')"
        calls = [(call.name, call.status, call.tokens > 0) for call in r.tool_calls]
        assert calls == [
            ("add", "ok", False),
            ("ops.read_file", "ok", False),
            ("llm", "ok", True),
        ]
        listed = s.execute("%tools")
        (table,) = (one for one in listed.displays if "vnd.cellblock.tools" in str(list(one.data)))
        assert "4 tools of the host's" in str(table)


def test_sandboxes_of_a_pool_call_them_too_and_each_has_a_budget_of_its_own(policy):
    pool = SandboxPool(policy, project=".", tools=[add])
    with pool, pool.sandbox() as a, pool.sandbox() as b:
        for name, one in (("b", a), ("c", b)):
            assert one.execute("add(1), ops.read_file('a.txt')").result == "(2, 'text')"
            written = one.execute(f"ops.write_file('{name}.txt', 'x' * 60)")
            assert written.success, written.to_string()
            spent = one.execute(f"ops.write_file('{name}{name}.txt', 'x' * 60)")
            assert "BudgetSpent" in spent.error.message


def test_a_function_can_not_stand_in_for_what_the_policy_grants(policy):
    with pytest.raises(PolicyError, match="the policy has a tool of this name already"):
        Sandbox(policy, project=".", tools={"llm": add}).open()


def test_packages_are_there_before_the_first_cell_of_each(home):
    with Index() as index:
        index.add("alpha-one", "1.0")
        policy = Policy.preset(
            "safe",
            name="packed",
            allowed_modules=("alpha_one",),
            packages=("alpha-one",),
            ops={"install": {"index": index.url, "allow": ["alpha-one"]}},
        )
        assert home
        with SandboxPool(policy) as pool:
            for _ in range(2):
                with pool.sandbox() as s:
                    assert s.execute("import alpha_one\nalpha_one.version").result == "'1.0'"


# --- addresses --------------------------------------------------------------------------------


def test_each_sandbox_of_a_pool_reaches_what_is_listed_and_nothing_else(home):
    site, other = Site(), Site()
    policy = Policy.preset("unsafe", network_access=(f"localhost:{site.port}",))
    get = "import urllib.request\nurllib.request.urlopen({!r}).read()"
    try:
        with (
            SandboxPool(policy, allow_unsafe=True) as pool,
            pool.sandbox() as a,
            pool.sandbox() as b,
        ):
            for one in (a, b):
                assert one.execute(get.format(f"{site.origin}/x")).result == "b'you asked for x'"
                assert one.execute(get.format(other.origin)).status == "error"
        assert (site.asked, other.asked) == (["/x", "/x"], [])
    finally:
        site.close()
        other.close()
    logs = (home / "cache" / "cellblock" / "audit").iterdir()
    records = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    reached = [one.get("reached") for one in records if one["kind"] == "connections"]
    assert reached.count({f"127.0.0.1:{site.port} (localhost)": 1}) == 2


def test_a_fork_reaches_what_is_listed_and_gives_up_what_is_its_own(home):
    assert home
    site, other = Site(), Site()
    try:
        listed = (f"localhost:{site.port}", f"localhost:{other.port}")
        policy = Policy.preset("unsafe", network_access=listed)
        get = "import urllib.request; urllib.request.urlopen('{}/x').read()"
        first, second = (get.format(one.origin) for one in (site, other))
        narrow = f'%policy narrow --fresh network_access=["{listed[0]}"]'
        with Sandbox(policy, allow_unsafe=True) as s:
            assert s.execute(first).success
            with s.fork(1)[0] as fork:
                assert fork.execute(second).success
            assert s.execute(second).success  # the network outlives a fork
            one, another = s.fork(2)
            for narrowed, others in ((one, [s, another]), (s, [another])):
                assert narrowed.execute(narrow).success
                assert narrowed.execute(second).error.type == "URLError"
                assert narrowed.execute(first).success
                for each in others:
                    assert each.execute(second).success
    finally:
        site.close()
        other.close()


# --- admission --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def approved(home):
    """A policy under which one text was approved."""
    policy = Policy.preset("safe", name="mine", admission="approved")
    path = home / "project" / "a.ipynb"
    cell = nbformat.v4.new_code_cell(FINE)
    path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=[cell])))
    placed = load.check_policy(policy, project=path.parent, allow_unsafe=False)
    place = store.of_cells(placed, path.parent)
    assert review.approve(place, placed, review.review(place, placed, path.name, {1: FINE}))
    return policy


def test_a_program_has_approved_cells_run_and_no_others(approved):
    with Sandbox(approved, project=".") as s:
        assert s.execute(FINE).result == "'fine'"
        r = s.execute(FINE.replace("fine", "more"))
        assert (r.status, r.usage, [one.rule for one in r.denials]) == (
            "denied",
            None,
            ["cell-not-approved"],
        )
        said = r.to_string()
        assert said.startswith("The cell was not run: 1 finding (policy mine).\n\nline 1: ")


def test_templates_are_all_that_runs_where_the_policy_says_so(home):
    assert home
    with Sandbox(Policy.preset("safe", admission="template")) as s:
        assert s.execute("1 + 1").denials[0].rule == "not-a-template"
        r = s.execute('%%template table\n{"columns": ["a"], "rows": [{"a": 1}]}')
        assert r.success, r.to_string()


def test_what_may_run_can_not_be_told_is_a_refusal(home):
    lost = {"folder": str(home / "nowhere"), "key": str(home / "nowhere" / "key")}
    with Sandbox(Policy.preset("safe", admission="approved", approval=lost)) as s:
        r = s.execute(FINE)
    assert (r.status, r.error.type, r.usage) == ("refused", "AdmissionProblem", None)


def test_what_was_not_approved_runs_in_no_fork_and_no_variant_either(approved):
    """P1: each of them is a session of its own, which has to have the gate of the one it is from."""
    attack = "globals().update(ran=1)"

    def is_refused(r):
        return [one.rule for one in r.denials] == ["cell-not-approved"]

    with Sandbox(approved.replace(mode="confined"), project=".", allow_unsafe=True) as s:
        assert s.execute(FINE).result == "'fine'"
        (fork,) = s.fork()
        (alike,) = s.fork(shares_files=True)
        (inner,) = fork.fork()
        found = s.try_variants([attack, FINE, f"%branch {{{attack}}}"], lambda _: 1)
        assert [is_refused(r) for r in found.results] == [True, False, True]
        s.go_on_from(alike)
        for one in (s, fork, alike, inner):
            assert is_refused(one.execute(attack))
            assert "ran" not in {variable.name for variable in one.variables()}
        with pytest.raises(ExchangeError, match="can't be set"):
            s.set(f"x = {attack}", 1)
