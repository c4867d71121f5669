"""A line between a zygote and the process that mounts for it."""

import socket

import pytest


@pytest.fixture
def lines():
    """Return both ends of a line; the other one waits for nothing."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs
