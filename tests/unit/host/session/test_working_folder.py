"""Where guests of a narrower policy begin."""

from pathlib import Path

import pytest

from cellblock.host.session import config
from cellblock.policy.model import Policy
from cellblock.wire.messages import Plan


@pytest.mark.parametrize(
    ("roots", "operators", "begins"),
    [
        (("/project",), ("/project",), "/project"),
        (("/project/data",), ("/project",), "/project"),
        (("/project/data",), ("/",), "/project"),
        ((), ("/project",), "/scratch"),
        (("/elsewhere",), ("/project", "/elsewhere"), "/scratch"),
        (("/project/data",), ("/project/data",), "/scratch"),
    ],
)
def test_guests_begin_in_the_project_while_a_part_of_it_is_left(roots, operators, begins):
    policy = Policy(filesystem_read_roots=operators)
    plan = Plan(read_roots=roots, write_roots=("/scratch",))
    wanted = config._first_cwd(policy, Path("/project"), Path("/scratch"))
    assert (wanted if config.can_see(plan, wanted) else "/scratch") == begins
