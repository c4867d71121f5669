"""A denial says what the policy in force gives, not what a preset of another name would."""

import pytest

from cellblock.host.cells.principle import principle
from cellblock.policy.model import Policy
from cellblock.render.denial import AMBIENT

SCRATCH = "/tmp/cellblock-x/scratch"
DATA = {
    "allowed_modules": ("numpy", "pandas", "scipy", "mylib"),
    "filesystem_read_roots": ("/lab",),
    "filesystem_write_roots": (SCRATCH, "/lab/work"),
}
REST = "clock, randomness, bundled data."


def said(**fields):
    policy = Policy().replace(name="lab", filesystem_write_roots=(SCRATCH,))
    return principle(policy.replace(**fields), "/lab", SCRATCH)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, AMBIENT),
        ({"mode": "unsafe"}, ""),
        (
            DATA,
            (
                "Policy lab allows the scientific stack, the project folder's files to read, writing"
                f" below work, {REST}"
            ),
        ),
        ({"allowed_modules": ("a", "b")}, f"Policy lab allows importing a, b, {REST}"),
        (
            {"allowed_modules": tuple("abcdef")},
            f"Policy lab allows importing a, b, c and 3 more, {REST}",
        ),
        (
            {"filesystem_read_roots": ("/srv/data",)},
            f"Policy lab allows files below /srv/data to read, {REST}",
        ),
        ({"network_access": True}, f"Policy lab allows the network, {REST}"),
        (
            {"network_access": ("a.org:443",)},
            f"Policy lab allows connections to a.org:443, {REST}",
        ),
        (
            {"env_var_access": ("HOME",), "subprocess_execution": True},
            f"Policy lab allows environment variables HOME, starting programs, {REST}",
        ),
    ],
)
def test_what_a_policy_gives_is_said_of_that_policy(fields, expected):
    assert said(**fields) == expected
