"""%undo: back to the state before the last cell that ran, and further."""

import pytest

from support import reading


@pytest.fixture
def kernel(start):
    return start("safe")


def run(kernel, code, **extra):
    reply, published = kernel.run(code, **extra)
    assert reply["status"] == "ok", reply
    return published


def value(kernel, expression):
    return reading.result(run(kernel, expression))


def undone(published):
    (card,) = reading.cards(published, "outcome")
    assert card["outcome"] == "undone"
    return card["cells"]


def test_it_steps_back_over_the_last_cell(kernel):
    run(kernel, "x = [1]")
    run(kernel, "x.append(2)")
    published = run(kernel, "%undo")
    assert undone(published) == [2]
    assert "Undone: [2]." in reading.card_text(published)
    assert "Your variables are as they were before [2]." in reading.card_text(published)
    assert value(kernel, "x") == "[1]"


def test_it_steps_back_over_several(kernel):
    for number in range(6):
        run(kernel, f"import random; x = {number}; r = random.random()")
    assert undone(run(kernel, "%undo 3")) == [4, 5, 6]
    assert value(kernel, "x") == "2"


def test_it_steps_back_over_cells_that_followed_each_other_at_once(kernel):
    sent = [kernel.execute_send(code) for code in ("x = 1", "x += 1", "x += 1", "x += 1")]
    for mid in sent:
        assert kernel.reply(mid)["content"]["status"] == "ok"
    assert undone(run(kernel, "%undo 2")) == [3, 4]
    assert value(kernel, "x") == "2"


def test_again_and_again(kernel):
    run(kernel, "x = [1]")
    run(kernel, "x.append(2)")
    run(kernel, "x.append(3)")
    assert undone(run(kernel, "%undo")) == [3]
    assert undone(run(kernel, "%undo")) == [2]
    assert value(kernel, "x") == "[1]"


def test_cells_that_did_not_run_and_silent_ones_do_not_count(kernel):
    run(kernel, "x = [1]")
    run(kernel, "x.append(2)")
    assert kernel.run("import os")[0]["ename"] == "PolicyDenied"
    run(kernel, "x.append(3)", silent=True)
    assert undone(run(kernel, "%undo")) == [2]
    assert value(kernel, "x") == "[1]"


def test_a_cell_that_failed_halfway_is_undone_too(kernel):
    run(kernel, "x = [1]")
    assert kernel.run("x.append(2)\n1 / 0")[0]["ename"] == "ZeroDivisionError"
    run(kernel, "%undo")
    assert value(kernel, "x") == "[1]"


def test_in_and_out_say_what_was_undone(start):
    kernel = start("unsafe", "--allow-unsafe")
    run(kernel, "x = [1]")
    run(kernel, "x.append(2); x")
    run(kernel, "%undo")
    assert value(kernel, "In[1:5]") == (
        "['x = [1]', '# undone\\nx.append(2); x', '%undo', 'In[1:5]']"
    )
    assert value(kernel, "sorted(Out)") == "[4]"


def test_the_history_says_what_was_undone(kernel):
    run(kernel, "x = [1]")
    run(kernel, "x.append(2)")
    run(kernel, "%undo")
    asked = {"hist_access_type": "tail", "n": 1, "raw": True, "output": False}
    ((_, line, text),) = kernel.ask("history_request", asked)["content"]["history"]
    assert (line, text) == (3, "%undo  # undid [2]")
    assert undone(run(kernel, text)) == [1]  # as it is recalled, it runs


def test_more_than_there_is_changes_nothing_and_says_so(kernel):
    assert kernel.run("%undo")[0]["evalue"] == "%undo 1: there is nothing to undo"
    run(kernel, "x = 1")
    run(kernel, "x = 2")
    reply, _ = kernel.run("%undo 9")
    assert (reply["status"], reply["evalue"]) == ("error", "%undo 9: 2 can be")
    assert value(kernel, "x") == "2"


def test_a_refusal_has_a_name_of_its_own_and_what_the_cell_took(kernel):
    mid = kernel.execute_send("x = sum(range(1000)); print(x)\n%undo 9")
    message = kernel.reply(mid)
    kernel.until_idle(mid)
    said = "%undo 9: there is nothing to undo"
    assert (message["content"]["ename"], message["content"]["evalue"]) == ("UndoRefused", said)
    assert message["metadata"]["cellblock"]["usage"]["output_bytes"] == len("499500\n")
    assert value(kernel, "x") == "499500"


@pytest.mark.parametrize("line", ["%undo x", "%undo 0", "%undo -1", "%undo " + "9" * 5_000])
def test_anything_but_a_number_is_refused(kernel, line):
    reply, _ = kernel.run(line)
    assert reply["ename"] == "UsageError"


def test_without_snapshots_there_is_nothing_to_undo(start, world):
    kernel = start(world.policy('snapshots = "off"\n'), world=world)
    run(kernel, "x = 1")
    run(kernel, "x = 2")
    assert kernel.copies() == []
    assert kernel.run("%undo")[0]["evalue"] == "%undo 1: there is nothing to undo"


def test_as_many_copies_as_the_policy_says(start, world):
    kernel = start(world.policy("undo_depth = 2\n"), world=world)
    for number in range(6):
        run(kernel, f"import random; x = {number}; r = random.random()")
    assert kernel.run("%undo 3")[0]["evalue"] == "%undo 3: 2 can be"
    assert len(kernel.copies()) <= 3
