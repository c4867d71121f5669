"""How a stop is put into words."""

import pytest

from cellblock.host.cell import status
from cellblock.host.session.types import Stopped


@pytest.mark.parametrize("why", ["breach", "crash", "silent", "violation"])
def test_nothing_that_a_guest_says_acts_on_a_terminal(why):
    _, said = status.stop_reason(Stopped(why, "os.open\r\x1b[2K\u202elive"), None)
    assert ("os.open" in said) is (why != "breach")  # of which a name is said, or nothing
    assert said.isprintable()
