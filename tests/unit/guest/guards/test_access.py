"""What a settled name is settled by."""

from cellblock.analysis.names import SETTLED
from cellblock.guest.guards import access


def test_every_name_that_is_settled_has_what_settles_it():
    assert access._SETTLERS.keys() == SETTLED
