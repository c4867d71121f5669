"""What is read of the table of magics beside the checks of cells."""

import pytest

from cellblock.analysis.magics import may_go_back


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%undo", True),
        ("if x:\n    %restore a", True),
        ("undo 2", True),
        ("get_ipython().run_line_magic('branch', 'b')", True),
        ("%policy narrow timeout=1", True),
        ("model.checkpoint(path)", False),
        ("# nothing to undo", False),
        ("%usage", False),
    ],
)
def test_a_cell_may_go_back_if_it_names_a_magic_that_does(cell, expected):
    assert may_go_back(cell) is expected
