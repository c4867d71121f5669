"""What is shown of a cell that was refused, of the policy, and of a policy that is wrong."""

import pytest

from cellblock.render.text import wrap
from support import reading
from support.kernels import Kernel, argv_for

DENIED = "import gc, json\nx = 1\n\nrows = open('data/a.csv').readlines()"

#: Packages of data, with the source check.
SAFE_DATA = 'extends = "data"\nmode = "safe"\nsubprocess_execution = false'


@pytest.mark.quick
def test_a_denied_cell_does_not_start_and_says_everything_at_once(safe):
    safe.run("x = 'before'")
    reply, published = safe.run(DENIED)
    assert reading.kinds(published) == ["display_data", "error"]
    (card,) = reading.cards(published, "denial")
    assert [(f["rule"], f["line"]) for f in card["findings"]] == [
        ("import-not-allowed", 1),
        ("builtin-not-allowed", 4),
    ]
    text = reading.card_text(published)
    assert text.startswith("cellblock did not run this cell: 2 findings")
    assert "\n  line 1  gc hands out every object in the process\n" in text
    assert "\n  Instead of open, line 4: " in text
    assert "\n  To allow it, write this to cells.toml, by hand or by cellblock policy add" in text
    assert '\n    ops.read_file.roots = ["{project}"]\n' in text
    assert text.endswith('\n    add.read_deny_paths = ["@secrets"]')
    # Runners without a screen have all of it in the reply.
    assert reading.ANSI.sub("", "\n".join(reply["traceback"])) == text
    (error,) = reading.of(published, "error")
    assert reply["ename"] == error["ename"] == "PolicyDenied"
    assert reply["evalue"] == error["evalue"]
    assert reading.result(safe.run("x")[1]) == "'before'"


def test_a_denial_says_what_to_put_into_its_own_policy(start, world):
    (world.work / "work").mkdir(exist_ok=True)
    own = 'filesystem_read_roots = ["{project}"]\nadd.allowed_modules = ["@science"]'
    file = world.policy(own, name="lab")
    add = f"cellblock policy add {file} 'LINES', and restart the kernel."
    kernel = start(file, world=world)
    kernel.run("1")  # gaps, where there are any
    assert reading.card_text(kernel.run("open('a.csv')")[1]) == (
        "cellblock did not run this cell: 1 finding                           policy: lab\n"
        "\n"
        "  line 1  open opens files\n"
        "\n"
        '  Instead: read tables with pandas, as pd.read_csv("a.csv"), or call\n'
        '  ops.read_file("a.csv") once it is allowed. If it is a name of your own, choose\n'
        "  another.\n"
        "\n"
        + "\n".join(
            wrap(f"To allow it, add this to your policy file {file}, by {add}", indent="  ")
        )
        + '\n    ops.read_file.roots = ["{project}"]'
        + '\n    add.read_deny_paths = ["@secrets"]'
    )


def test_a_denied_cell_counts_and_is_kept_in_history(safe):
    count = safe.run("1")[0]["execution_count"]
    assert safe.run("import gc")[0]["execution_count"] == count + 1
    assert safe.run("1")[0]["execution_count"] == count + 2


def test_a_denied_silent_run_is_denied_in_its_reply(safe):
    reply, published = safe.run("import gc", silent=True)
    assert reply["ename"] == "PolicyDenied"
    assert [m["msg_type"] for m in published] == ["status", "status"]


def test_a_violation_at_run_time_names_its_rule(safe):
    reply, published = safe.run("name = '__glo' + 'bals__'\ngetattr(lambda: 1, name)")
    assert reply["status"] == "error"
    assert reply["ename"].endswith("Violation")
    assert "cellblock" not in reading.traceback(published)


def test_gaps_that_matter_are_shown_above_the_first_cell_and_policy_says_what_enforces_each_field(
    start,
):
    kernel = start("safe")
    _, first = kernel.run("1")
    _, second = kernel.run("1")
    _, published = kernel.run("%policy")
    (table,) = reading.cards(published, "policy")
    gaps = table["gaps"]
    assert reading.cards(second, "enforcement") == []
    shown = reading.cards(first, "enforcement")
    # Behind bubblewrap there are none; elsewhere files' names can be seen.
    seen = [g["capability"] for card in shown for g in card["gaps"]]
    assert seen == (
        [] if table["policy"]["backend"] == "bubblewrap" else [g["capability"] for g in gaps]
    )
    if seen:
        assert reading.kinds(first)[0] == "display_data"
    assert table["policy"]["name"] == "safe"
    assert "network_access" in reading.card_text(published)
    statuses = {e["capability"]: e["status"] for e in table["enforcement"]}
    assert statuses["network_access"] in {"verified", "asserted"}
    assert statuses["subprocess_execution"] in {"verified", "asserted"}


def test_a_noop_backend_is_a_gap_for_every_lock_and_warned_of_once(start, world):
    kernel = start(world.policy('backend = "noop"\nrequire = []'), world=world)
    _, first = kernel.run("1")
    _, second = kernel.run("import time; time.sleep(0)")
    (card,) = reading.cards(first, "enforcement")
    missing = {g["capability"] for g in card["gaps"]}
    assert {"filesystem_read_roots", "network_access", "subprocess_execution"} <= missing
    assert reading.card_text(first).startswith("✗ Audit only: nothing of this policy is enforced")
    assert reading.cards(second, "enforcement") == []
    warned = [line for line in kernel.stderr().splitlines() if "WARN" in line]
    said = "backend noop: policy 'mine' is audited, not enforced"
    why = "cells can read, change and send whatever this user can"
    assert warned == [f"cellblock: WARN: {said}: {why}"]
    assert reading.card_text(kernel.run("%policy")[1]).startswith("Policy mine: audit only, ")


#: What unit/policy/test_load.py refuses of a file, and what no backend here keeps.
WRONG = {
    "key": ("netwrok_access = true", "netwrok_access"),
    "required": ('backend = "noop"\nrequire = ["network_access"]', "network_access"),
    "unsupported": ('backend = "noop"\non_unsupported = "error"', ""),
}


@pytest.mark.parametrize("kind", WRONG)
def test_with_a_wrong_policy_every_cell_says_what_is_wrong_and_none_runs(kind, world):
    text, named = WRONG[kind]
    with_problem(world.policy(text), named, world)


def test_a_policy_that_is_not_there_is_named(world):
    with_problem(world.root / "none.toml", "none.toml", world)


def test_mode_unsafe_has_to_be_asked_for(world):
    with_problem("unsafe", "--allow-unsafe", world)


def with_problem(policy, named, world):
    with Kernel(argv_for(policy), world=world) as kernel:
        kernel.wait_heard()
        info = kernel.ask("kernel_info_request", {})
        assert info["content"]["status"] == "ok"
        for _ in range(2):
            reply, published = kernel.run("print('ran')")
            assert reply["status"] == "error"
            assert reading.of(published, "error")[0]["ename"] == reply["ename"] == "PolicyProblem"
            assert named in reading.card_text(published)
            assert "stream" not in reading.kinds(published)
        for query in ("complete_request", "inspect_request"):
            content = {"code": "pri", "cursor_pos": 3}
            assert kernel.ask(query, content)["content"]["status"] == "ok"


def test_an_unknown_option_ends_the_kernel_with_its_usage(world):
    with Kernel(argv_for("safe", "--allow-everything"), world=world) as kernel:
        assert kernel.proc.wait(10) != 0
        assert "unknown argument '--allow-everything'" in kernel.stderr()


def test_a_cell_that_reads_a_name_that_a_refused_cell_sets_says_so_once(start, world):
    kernel = start("safe", world=world)
    kernel.run("x = 'before'")
    count = kernel.run("import gc\nx = y = z = gc.get_count()")[0]["execution_count"]
    why = f"is missing or old: cell {count}, which sets it, was not run]"
    _, published = kernel.run("x")
    assert reading.result(published) == "'before'"
    assert reading.notices(published) == f"[cellblock notes: x {why}\n"
    assert reading.notices(kernel.run("x")[1]) == ""
    reply, published = kernel.run("[y for _ in range(1)]")
    assert reply["ename"] == "NameError"
    assert reading.notices(published) == f"[cellblock notes: y {why}\n"
    # A cell that sets a name makes it good.
    assert [reading.kinds(kernel.run(code)[1]) for code in ("z = 1", "z + 1")] == [
        [],
        ["execute_result"],
    ]
