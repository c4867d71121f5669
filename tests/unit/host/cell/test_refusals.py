"""Which field of a policy a failed call is put down to."""

import errno

import pytest

from cellblock.host.cell.refusals import _thread
from cellblock.policy.model import Policy
from cellblock.wire.messages import FailedCall

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
