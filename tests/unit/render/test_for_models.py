"""A model is not told to do what only the operator can."""

import re
import time

import pytest

from cellblock import CellError, Denial, Policy, Result, Stop
from cellblock.analysis import analyse
from cellblock.analysis.findings import RULES
from cellblock.render import outcomes
from cellblock.render.for_models import for_models

#: What no model can do, unless it is said of the operator in the same fragment.
ORDERS = re.compile(
    r"(?<!operator )(?<!operator can )\b(?:[Pp]ut|[Cc]hoose the|[Ss]et|[Ww]rite in|[Cc]hange)\b(?:(?!, or |\. ).)*"
    r"(?:policy file|file of policy|kernel)|cellblock install|cellblock approve|"
    r"[Rr]estart\s+the\s+kernel|your policy|(?<!operator can run: )cellblock policy add"
)


def remedies():
    yield from (rule.remedy for rule in RULES.values())
    policies = [Policy.preset(one) for one in ("safe", "data")]
    cells = ("import pandas", "import subprocess", "open('a')", "%load_ext a", "!ls", "import gc")
    for policy in (*policies, Policy.preset("safe").replace(name="agent")):
        for cell in cells:
            yield from (one.remedy for one in analyse(cell, policy.rules()))


def test_no_remedy_orders_a_model_to_do_what_only_the_operator_can():
    said = [for_models(one) for one in remedies()]
    assert [one for one in said if ORDERS.search(one)] == []
    assert any("ave the operator choose policy data" in one for one in said)


def test_where_a_person_is_asked_about_an_import_is_said_to_a_model():
    one = Denial("import-not-allowed", 1, 0, 1, "x", "x", "y", "Approve it where you can be asked.")
    said = Result(status="denied", denials=(one,), policy="x").to_string()
    assert "Approve" not in said
    assert "Instead: Import it in a cell that breaks no other rule" in said


@pytest.mark.parametrize("name", ["safe", "agent", ""])
def test_no_card_on_a_stopped_cell_does(name):
    for reason in outcomes.Reason:
        card = outcomes.stopped(
            reason, state=outcomes.State.kept, policy_name=name, estimate="estimated"
        )
        stop = Stop(str(reason), "", "kept", card["text/plain"])
        said = Result(status="stopped", stop=stop).to_string()
        assert ORDERS.search(" ".join(said.split())) is None, said


def test_a_refusal_and_a_denial_are_of_the_operator_in_a_reply_and_a_cells_own_words_stay():
    refused = outcomes.Refusal(
        "network", "cells have no network", outcomes.Remedy("allowed_hosts = []")
    )
    sentence = outcomes.refusal_sentence(refused, "safe", "safe")
    own = CellError("OSError", sentence, "")
    said = Result(status="error", error=own, refusal=refused).to_string()
    command = "cellblock policy add cells.toml 'allowed_hosts = []'"
    assert f"To allow it, the operator can run: {command}" in said
    assert f"OSError: {sentence}" in Result(status="error", error=own).to_string()

    remedy = "Choose the kernel cellblock (data), which has it."
    lines = ('add.allowed_modules = ["os"]',)
    one = Denial("import-not-allowed", 1, 0, 1, "", "os", "is", remedy, allows=lines)
    for policy, block in (("x", lines), ("safe", ('extends = "safe"', *lines))):
        assert (
            Result(status="denied", denials=(one, one), policy=policy)
            .to_string()
            .endswith(
                "Instead: Have the operator choose policy data, which has it.\n\n"
                "The operator can allow it, by cellblock policy add FILE 'LINES':\n    "
                + "\n    ".join(block)
            )
        )
    assert Result(status="ok", output=f"{remedy}\n").to_string().endswith(remedy)


def test_words_that_a_cell_chose_take_no_longer_than_others():
    began = time.process_time()
    for_models("put " * 20_000)
    assert time.process_time() - began < 3  # minutes, where each looks to the end
