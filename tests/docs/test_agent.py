"""A language model's kernel: what it reads back is what the page shows."""

import types

import pytest

from support import pages, processes

PAGE = "howto/agent.md"


@pytest.fixture
def agent(world, follow):
    """The page's module, with a kernel for its policy and some data."""
    (world.work / "data").mkdir()
    (world.work / "data/sales.csv").write_text("day,amount\n1,40\n2,2.5\n")
    follow(PAGE)
    module = types.ModuleType("agent")
    exec(compile(pages.files(PAGE)["agent.py"], "agent.py", "exec"), module.__dict__)
    yield module
    assert processes.gone([]) == []


def test_a_model_reads_its_denial_and_does_better(world, agent):
    cells = pages.cells(PAGE)
    left = [cell.source for cell in cells]
    notebook = agent.Notebook(world.work)
    try:
        said = agent.converse(
            "Add up the sales.", lambda _: left.pop(0) if left else None, notebook
        )
        crashed = notebook.run("1 / 0")
    finally:
        notebook.close()

    assert said == ["Add up the sales.", *(text for c in cells for text in (c.source, c.says))]
    assert crashed.splitlines()[-1] == "ZeroDivisionError: division by zero"
