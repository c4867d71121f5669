"""A project that was given to somebody: its links choose nothing that cells may write or read."""

import pytest

from support import reading
from support.kernels import Kernel, argv_for

POLICY = """
extends = "data"
filesystem_write_roots = ["{scratch}", "{project}/work?"]
filesystem_staged_roots = []
"""


@pytest.fixture
def given(world):
    """Return a project and a folder of the user's outside it, where nothing may come to be."""
    outside = world.home / "outside"
    outside.mkdir()
    return world.work, outside


def ended(world):
    """Return how a cell ends that writes to the project's work folder, and what is shown."""
    kernel = Kernel(argv_for(world.policy(POLICY)), world=world)
    try:
        code = "import pandas as pd; pd.Series([1]).to_csv('work/planted.csv')"
        reply, published = kernel.wait_heard().run(code)
        kernel.run("1")
    finally:
        kernel.close()
    return reply, published


@pytest.mark.parametrize("tail", ["", "/below"])
def test_a_work_folder_that_leads_out_of_the_project_runs_no_cell(world, given, tail):
    project, outside = given
    (outside / "below").mkdir()
    (project / "work").symlink_to(f"{outside}{tail}")

    reply, published = ended(world)

    detail = f"a link leads out of the project folder, to {outside}{tail}"
    assert (reply["status"], reply["ename"], reply["evalue"]) == ("error", "PolicyProblem", detail)
    (card,) = reading.cards(published, "problem")
    remedy = "Put a folder in the link's place, or name where it leads in a policy of your own."
    remedy += " Then restart the kernel."
    assert card == {
        "version": card["version"],
        "title": "cellblock can't run cells with this policy",
        "detail": detail,
        "file": str(world.policy(POLICY)),
        "key": "filesystem_write_roots",
        "value": "'{project}/work?'",
        "remedy": remedy,
    }
    assert [path for path in outside.rglob("*") if path.is_file()] == []


def test_a_work_folder_swapped_for_a_link_after_the_start_leads_nowhere(world, given, start):
    """What is writable was settled with links resolved: a folder, not a name."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    project, outside = given
    (project / "work").mkdir()
    kernel = start(world.policy(POLICY), world=world)
    (project / "work").rename(project / "before")
    (project / "work").symlink_to(outside)

    code = "import pandas as pd; pd.Series([1]).to_csv({!r})"
    reply, _ = kernel.run(code.format("work/planted.csv"))

    # OSError: in a namespace where it leads there is nothing.
    assert reply["status"] == "error"
    assert reply["ename"] in {"PermissionError", "OSError"}
    assert list(outside.iterdir()) == []
    assert kernel.run(code.format("before/kept.csv"))[0]["status"] == "ok"
    assert (project / "before" / "kept.csv").exists()


def test_a_work_folder_by_a_link_within_the_project_is_written_to(world, given, start):
    """The control: the same cell, the same policy."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    project, _ = given
    (project / "results").mkdir()
    (project / "work").symlink_to("results")
    kernel = start(world.policy(POLICY), world=world)
    code = "import pandas as pd; pd.Series([1]).to_csv('work/planted.csv')"
    assert kernel.run(code)[0]["status"] == "ok"
    assert (project / "results" / "planted.csv").exists()
