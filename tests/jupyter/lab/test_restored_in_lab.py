"""What a user of JupyterLab sees of a cell that was killed, undone, measured, or talked too much."""

import pytest

from support.kernels import argv_for

CELLS = [
    "rows = list(range(5))\nrows",
    "sum(range(10**11))",
    "rows",
    "rows.clear()",
    "%undo",
    "rows",
    "for n in range(60_000): print(f'line {n}')",
    "%output 7 last",
    "total = sum(n * n for n in range(300_000))",
    "%usage",
    "In[4:6]",
]
RULED = "extends = 'safe'\ntimeout = 4.0\nstdout_max_bytes = 400\n"


@pytest.fixture(params=["light", "dark"])
def theme(request):
    return request.param


def test_a_day_with_kills_reads_well(open_notebook, lab, world, theme):
    lab.add_kernel("ruled", argv_for(world.policy(RULED)))
    view = open_notebook(CELLS, kernel="ruled", theme=theme, height=3_000)
    for index in range(len(CELLS)):
        view.run(index)
    view.shot(f"restored-{theme}")
    said = [" ".join(view.outputs(n).all_inner_texts()) for n in range(len(CELLS))]
    assert "Your variables are as they were before it." in said[1]
    assert "[0, 1, 2, 3, 4]" in said[2]
    assert "[0, 1, 2, 3, 4]" in said[5]
    assert "%output 7" in said[6]
    assert "line 59999" in said[6]
    assert "line 59999" in said[7]
    assert "# undone" in said[10]
