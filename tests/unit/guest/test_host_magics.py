"""The magics that ask the host, beside the table of magics that policies and guards read."""

from cellblock.analysis.magic_table import MAGICS, SHOWN_BY_HOST
from cellblock.guest.shell import HostMagics
from cellblock.host.cell.status import ANSWERS


def test_a_policy_may_name_each_magic_of_the_host_and_each_view_is_one_of_these():
    ours = {*HostMagics.magics["line"], *SHOWN_BY_HOST}
    assert ours <= MAGICS.keys()
    assert {name for name, magic in MAGICS.items() if magic.view or magic.goes_back} <= ours


def test_what_the_host_shows_has_its_function_there_and_no_other_in_the_guest():
    assert ANSWERS.keys() == set(SHOWN_BY_HOST)
    assert not set(SHOWN_BY_HOST) & HostMagics.magics["line"].keys()
