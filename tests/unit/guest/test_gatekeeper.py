"""Whose gate is kept, and until when."""

import os
import select
import socket

import pytest

from cellblock.guest.confine import arch
from cellblock.guest.gatekeeper import Gatekeeper
from cellblock.wire.messages import Plan

pytestmark = pytest.mark.skipif(arch.current() is None, reason="no table for this machine")


def concerning(keeper):
    (fd,) = (fd for fd in range(1_000) if keeper.concerns(fd))
    return fd


def test_a_gate_is_let_go_when_nobody_is_under_it_and_not_when_a_look_was_interrupted():
    """Such a look says POLLERR (seccomp_notify_poll in the OS kernel)."""
    poll = select.poll()
    keeper = Gatekeeper(poll, Plan(locks=("seccomp",)), lambda: None)
    with keeper.expect(1) as theirs:
        waiting, read, write = concerning(keeper), *os.pipe()
        socket.send_fds(theirs, [b"g"], [read])
        keeper.act(waiting, select.POLLIN)
    os.close(read)
    listener = concerning(keeper)
    keeper.act(listener, select.POLLERR)
    assert keeper.concerns(listener)
    keeper.act(listener, select.POLLHUP)
    assert not keeper.concerns(listener)
    os.close(write)
