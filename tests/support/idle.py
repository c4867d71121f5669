"""A kernel's loop that has nothing else to do than what is due later."""

from __future__ import annotations

from cellblock.descriptors import is_readable


class IdleReactor:
    """What is called later is called at once, and what is watched is waited for in ``wait``."""

    def __init__(self):
        self.watched = {}

    def call_later(self, _seconds, action):
        action()

    def watch(self, fd, action):
        self.watched[fd] = action

    def unwatch(self, fd):
        del self.watched[fd]

    def wait(self, seconds=120):
        """Wait for the one descriptor that is watched."""
        ((fd, action),) = self.watched.items()
        assert is_readable(fd, seconds)
        action()
