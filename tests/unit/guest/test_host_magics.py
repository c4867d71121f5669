"""The magics that ask the host, beside the table of magics that policies and guards read."""

from cellblock.analysis.magic_table import MAGICS
from cellblock.guest.shell import HostMagics


def test_a_policy_may_name_each_magic_of_the_host_and_each_view_is_one_of_these():
    ours = HostMagics.magics["line"].keys()
    assert ours <= MAGICS.keys()
    assert {name for name, magic in MAGICS.items() if magic.view or magic.goes_back} <= ours
