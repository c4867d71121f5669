"""Which field of a policy a failed call is put down to."""

import errno
from types import SimpleNamespace

import pytest

from cellblock.host.cell.refusals import _memory, _network, _thread
from cellblock.host.snapshots.memory import total
from cellblock.policy.model import Policy
from cellblock.wire.messages import FailedCall, Plan

GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "most", "number", "field"),
    [
        (8 * GIB, 512, errno.EAGAIN, "max_processes"),
        (8 * GIB, 512, errno.ENOMEM, "memory_max_bytes"),  # what it has otherwise is too much
        (GIB // 2, 512, errno.EAGAIN, "memory_max_bytes"),
        (8 * GIB, None, errno.EAGAIN, "memory_max_bytes"),
        (None, 512, errno.EAGAIN, "max_processes"),
    ],
)
def test_a_thread_that_does_not_start_names_the_limit_that_was_reached(memory, most, number, field):
    policy = Policy().replace(memory_max_bytes=memory, max_processes=most)
    assert _thread(FailedCall("thread", number), policy).field == field


@pytest.mark.parametrize(
    ("target", "number", "line"),
    [
        ("10.0.0.6:80", errno.ENETUNREACH, '["db.example:5432", "10.0.0.6:80"]'),
        ("127.0.0.1:80", errno.ECONNREFUSED, '["db.example:5432", "127.0.0.1:80"]'),
        ("other.example:80", errno.EHOSTUNREACH, '["db.example:5432", "other.example:80"]'),
        ("", errno.EACCES, "true"),
        # who is listed, and whoever is reached within
        ("db.example:5432", errno.ECONNRESET, ""),
        ("db.example:5432", errno.ECONNREFUSED, ""),
        ("db.example:5432", errno.ETIMEDOUT, ""),
        ("", errno.ECONNREFUSED, ""),
    ],
)
def test_of_a_list_that_is_named_which_lacks_who_was_not_reached(target, number, line):
    policy = Policy().replace(network_access=("db.example:5432",))
    plan = Plan(loopback=True, locks=("seccomp",))
    config = SimpleNamespace(policy=policy, prepare=SimpleNamespace(plan=plan))
    refusal = _network(FailedCall("network", number, target), config)
    assert (refusal.remedy.line if refusal else "") == (line and f"network_access = {line}")


@pytest.mark.parametrize(
    ("size", "line", "raises"),
    [
        (0, 'memory_max_bytes = "2 GiB"', True),
        (GIB + 1, 'memory_max_bytes = "3 GiB"', False),
    ],
)
def test_memory_for_what_was_asked_for_is_enough_where_its_size_is_known(size, line, raises):
    found = _memory(FailedCall("memory", size=size), Policy().replace(memory_max_bytes=GIB))
    assert (found.remedy.line, found.remedy.raises) == (line, raises)


def test_no_line_raises_memory_above_what_the_machine_has():
    there = total()
    for size, limit in ((there, GIB), (0, there - 1)):
        policy = Policy().replace(memory_max_bytes=limit)
        found = _memory(FailedCall("memory", size=size), policy)
        assert found.remedy.line == ""
        assert found.remedy.instead.startswith("this machine has ")
