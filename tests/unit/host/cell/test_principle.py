"""A denial says what the policy in force gives, not what a preset of another name would."""

import pytest

from cellblock.host.cell.status import principle
from cellblock.policy.model import Policy
from cellblock.render.denial import AMBIENT

SCRATCH = "/tmp/cellblock-x/scratch"
DATA = {
    "allowed_modules": ("numpy", "pandas", "scipy", "mylib"),
    "filesystem_read_roots": ("/lab",),
    "filesystem_write_roots": (SCRATCH, "/lab/work"),
}


def said(**fields):
    policy = Policy().replace(name="lab", filesystem_write_roots=(SCRATCH,))
    return principle(policy.replace(**fields), "/lab", SCRATCH)


def test_a_policy_that_gives_nothing_besides_is_not_named():
    assert said() == AMBIENT
    assert said(mode="unsafe") == ""


@pytest.mark.parametrize(
    ("fields", "given"),
    [
        (
            DATA,
            "the scientific stack, the project folder's files to read, writing below work",
        ),
        ({"allowed_modules": ("a", "b")}, "importing a, b"),
        ({"allowed_modules": tuple("abcdef")}, "importing a, b, c and 3 more"),
        ({"filesystem_read_roots": ("/srv/data",)}, "files below /srv/data to read"),
        ({"network_access": True}, "the network"),
        ({"network_access": ("a.org:443",)}, "connections to a.org:443"),
        (
            {"env_var_access": ("HOME",), "subprocess_execution": True},
            "environment variables HOME, starting programs",
        ),
    ],
)
def test_what_a_policy_gives_is_said_of_that_policy(fields, given):
    rest = "clock, randomness, bundled data."
    assert said(**fields) == f"Policy lab allows {given}, {rest}"
