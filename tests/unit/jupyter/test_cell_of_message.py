"""The cell of an ``execute_request``: whatever a front end sends in place of its text."""

import pytest

from cellblock.jupyter.kernel import cell_of
from cellblock.jupyter.messages import Message


@pytest.mark.parametrize("code", [["print(1)"], {"a": 1}, None, 7, 1.5, True])
def test_code_that_is_no_text_runs_as_none(code):
    empty = {"parent": {}, "metadata": {}, "buffers": [], "identities": []}
    content = {"code": code, "silent": False}
    cell = cell_of(Message(raw_header=b"{}", header={}, content=content, **empty))
    assert (cell.code, cell.silent) == ("", False)
