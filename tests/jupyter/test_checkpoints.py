"""%checkpoint and %restore: a state by its name, as often as one likes."""

import pytest

from support import reading
from support.reading import run


@pytest.fixture(scope="module")
def kernel(safe):
    return safe


def refusal(kernel, code):
    reply, _ = kernel.run(code)
    assert reply["status"] == "error"
    return reply["evalue"]


def value(kernel, expression):
    return reading.result(run(kernel, expression))


@pytest.mark.quick
def test_a_state_is_gone_back_to_by_its_name_more_than_once(kernel):
    run(kernel, "x = [1]")
    run(kernel, "%checkpoint one")
    run(kernel, "x.append(2); import secrets; y = secrets.token_hex()")
    published = run(kernel, "%restore one")
    (card,) = reading.cards(published, "outcome")
    assert reading.card_text(published) == (
        "Back at checkpoint one.\n"
        "Your variables are as they were there.\n"
        "Files and output stay as they are."
    )
    assert (card["outcome"], card["checkpoint"]) == ("restored", "one")
    assert value(kernel, "x") == "[1]"
    assert refusal(kernel, "y") == "name 'y' is not defined"
    run(kernel, "x = None")
    run(kernel, "%restore one")
    assert value(kernel, "x") == "[1]"


def test_one_goes_between_states_that_do_not_descend_from_each_other(kernel):
    run(kernel, "x = 'root'\n%checkpoint root")
    run(kernel, "x = 'left'\n%checkpoint left")
    run(kernel, "%restore root")
    run(kernel, "x = 'right'\n%checkpoint right")
    for name in ("left", "root", "right", "left"):
        run(kernel, f"%restore {name}")
        assert value(kernel, "x") == repr(name)


def test_a_killed_cell_costs_nothing_behind_a_restored_state_and_leaves_checkpoints(kernel):
    run(kernel, "x = 1\n%checkpoint kept")
    run(kernel, "x = 2")
    run(kernel, "%restore kept")
    for _ in range(2):
        run(kernel, "x += 10")
        reply, _ = kernel.run("list(range(10**9))")
        assert reply["status"] == "error"
    assert value(kernel, "x") == "21"
    run(kernel, "%restore kept")
    assert value(kernel, "x") == "1"


def test_a_name_is_given_anew_and_an_unknown_one_is_refused(kernel):
    run(kernel, "x = 1\n%checkpoint again")
    run(kernel, "x = 2\n%checkpoint again")
    run(kernel, "x = 3")
    run(kernel, "%restore again")
    assert value(kernel, "x") == "2"
    said = refusal(kernel, "%restore nowhere")
    assert said.startswith("%restore nowhere: there is no checkpoint or branch nowhere; there are ")
    assert "again" in said
    assert "takes a name" in refusal(kernel, "%checkpoint ../x")
    assert value(kernel, "x") == "2"


def test_a_cell_that_fails_keeps_no_state(kernel):
    run(kernel, "x = 1\n%checkpoint failing")
    assert refusal(kernel, "x = 2\n%checkpoint failing\n1 / 0") == "division by zero"
    run(kernel, "%restore failing")
    assert value(kernel, "x") == "1"


def test_there_are_as_many_as_the_policy_allows(start, world):
    kernel = start(world.policy("extends = 'safe'\nmax_branches = 2\n"), world=world)
    for name in ("a", "b", "a"):
        run(kernel, f"x = {name!r}\n%checkpoint {name}")
    said = refusal(kernel, "%checkpoint c")
    assert said == "%checkpoint c: max_branches allows 2, and there are a, b"
    run(kernel, "%restore b")
    assert value(kernel, "x") == "'b'"


def test_they_hold_no_more_for_themselves_than_copies_may(start, world):
    policy = "extends = 'unsafe'\nundo_max_bytes = 50_000_000\n"
    kernel = start(world.policy(policy), "--allow-unsafe", world=world)
    run(kernel, "x = bytearray(b'x' * 100_000_000)\n%checkpoint large")
    published = run(kernel, "x[::4096] = b'y' * len(x[::4096])")
    published += run(kernel, "import time; time.sleep(0.5)")
    assert reading.notices(published) == (
        "[cellblock dropped checkpoint large: all that have names held more memory than undo_max_bytes allows]\n"
    )
    assert "there is no checkpoint or branch large" in refusal(kernel, "%restore large")


def test_a_policy_that_was_narrowed_is_not_widened_by_going_back(start, world):
    policy = "extends = 'unsafe'\nsubprocess_execution = true\n"
    kernel = start(world.policy(policy), "--allow-unsafe", world=world)
    run(kernel, "import subprocess, sys\n%checkpoint wide")
    run(kernel, "%branch idea")
    run(kernel, "%policy narrow subprocess_execution=false")
    reply, _ = kernel.run("%restore wide")
    assert reply["status"] == "error"
    card = reading.card_text(run(kernel, "%branch main"))
    assert card.startswith("On branch main, which begins here.\nBranches: main, idea.\n%branch")
    assert kernel.run("subprocess.run([sys.executable, '-V'])")[0]["status"] == "error"


def test_a_crash_behind_a_restored_state_is_a_crash(start, world):
    kernel = start(world.policy("extends = 'unsafe'\n"), "--allow-unsafe", world=world)
    run(kernel, "import os, signal; x = 1\n%checkpoint one")
    run(kernel, "%restore one")
    _, published = kernel.run("os.kill(os.getpid(), signal.SIGSEGV)")
    (card,) = reading.cards(published, "outcome")
    assert (card["reason"], card["limit"]) == ("crashed", "it was ended by signal SIGSEGV")
    assert value(kernel, "x") == "1"


def test_a_cell_that_kills_what_waits_beside_it_costs_checkpoints_and_not_the_kernel(start, world):
    """An attack: whoever may start processes sees copies as its own."""
    policy = "extends = 'unsafe'\nsubprocess_execution = true\n"
    kernel = start(world.policy(policy), "--allow-unsafe", world=world)
    run(kernel, "import os, signal; x = 1\n%checkpoint one")
    killing = (
        "own = os.getpid()\n"
        "for pid in map(int, open(f'/proc/{own}/task/{own}/children').read().split()):\n"
        "    os.kill(pid, signal.SIGKILL)\n"
    )
    kernel.run(killing)
    kernel.run("%restore one")
    assert value(kernel, "x") == "1"


# --- %branch --------------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_notebook_goes_between_branches_and_begins_them_at_checkpoints(start, world):
    kernel = start(world.policy("extends = 'safe'\nmax_branches = 4\n"), world=world)
    run(kernel, "x = ['root']\n%checkpoint root")
    run(kernel, "x.append('main')")
    published = run(kernel, "%branch idea root")
    assert reading.card_text(published) == (
        "On branch idea. It goes on from root.\n"
        "Your variables are as they were there.\n"
        "Files and output stay as they are."
    )
    assert value(kernel, "x") == "['root']"
    run(kernel, "x.append('idea')")
    assert reading.card_text(run(kernel, "%branch second  # here")) == (
        "On branch second, which begins here.\n"
        "Branches: second, main, idea.\n"
        "Checkpoints: root.\n"
        "%branch NAME goes to a branch, or begins one here; %branch NAME CHECKPOINT\n"
        "begins one there; %branch -d NAME drops one."
    )
    run(kernel, "x.append('second')")
    for name, expected in {"main": "main", "idea": "idea", "main ": "main"}.items():
        assert f"On branch {name.strip()}.\n" in reading.card_text(run(kernel, f"%branch {name}"))
        assert value(kernel, "x") == f"['root', '{expected}']"
    assert kernel.run("list(range(10**9))")[0]["status"] == "error"
    assert value(kernel, "x") == "['root', 'main']"
    run(kernel, "%branch -d second")
    assert "Branches: main, idea.\n" in reading.card_text(run(kernel, "%branch"))


def test_a_branch_and_a_checkpoint_do_not_replace_each_other(start, world):
    kernel = start(world.policy("extends = 'safe'\n"), world=world)
    run(kernel, "x = 1\n%checkpoint main")
    assert "a checkpoint has that name" in refusal(kernel, "%branch idea")
    assert "%branch NEW main goes on from it" not in refusal(kernel, "%branch main")
    run(kernel, "%branch -d main")
    run(kernel, "%branch idea")
    run(kernel, "%checkpoint kept")
    assert refusal(kernel, "%branch main kept") == (
        "%branch main kept: there is a checkpoint or branch of this name already"
    )
    assert "%branch NEW kept goes on from it" in refusal(kernel, "%branch kept")
    assert refusal(kernel, "%checkpoint main").endswith("a branch has this name; choose another")
    assert "on this branch" in refusal(kernel, "%branch -d idea")
    assert "there are checkpoints: kept; branches: main" in refusal(kernel, "%branch -d none")
    assert "use %branch" in refusal(kernel, "%branch a b c")
    assert value(kernel, "x") == "1"
