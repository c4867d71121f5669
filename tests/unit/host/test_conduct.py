"""What a guest may say when."""

import pytest

from cellblock.host import conduct
from cellblock.host.request import Request
from cellblock.wire import messages

CELL = messages.Execute(
    id=1, source="", raw="", execution_count=1, silent=False, store_history=True,
    user_expressions={}, allow_stdin=False,
)  # fmt: skip
HANDLER = messages.CommIn(id=1, kind="comm_msg", content={}, metadata={}, buffers=[])
QUERY = messages.Complete(id=1, code="", cursor=0)


@pytest.mark.parametrize(
    ("message", "began", "heeded"),
    [(CELL, True, True), (CELL, False, False), (HANDLER, True, False), (QUERY, False, False)],
)
def test_only_a_cell_that_has_begun_may_ask_to_step_back(message, began, heeded):
    request = Request(message, print)
    request.began = began
    assert conduct.may_undo(request) is heeded
