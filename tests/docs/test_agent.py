"""A language model's sandbox: what it reads back is what the page shows."""

import types

import pytest

from support import doc_pages, processes

PAGE = "howto/agent.md"


@pytest.fixture
def agent(world, follow):
    """The page's module, with a sandbox for its policy and some data."""
    (world.work / "data").mkdir()
    (world.work / "data/sales.csv").write_text("day,amount\n1,40\n2,2.5\n")
    follow(PAGE)
    module = types.ModuleType("agent")
    exec(compile(doc_pages.files(PAGE)["agent.py"], "agent.py", "exec"), module.__dict__)
    yield module
    assert processes.gone([]) == []


def test_a_model_reads_its_denial_and_does_better(world, agent):
    cells = doc_pages.cells(PAGE)
    left = [cell.source for cell in cells]
    said = agent.converse("Add it up.", lambda _: left.pop(0) if left else None, world.work)
    assert said == ["Add it up.", *(text for c in cells for text in (c.source, c.says))]
