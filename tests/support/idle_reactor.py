"""``IdleReactor``: a reactor for what a kernel does in the background while it is idle."""

from __future__ import annotations

from cellblock.descriptors import is_readable


class IdleReactor:
    """A reactor that calls timers at once, and waits for the watched descriptor in ``wait``."""

    def __init__(self):
        self.watched = {}

    def call_later(self, _seconds, action):
        action()

    def watch(self, fd, action):
        self.watched[fd] = action

    def unwatch(self, fd):
        del self.watched[fd]

    def wait(self, seconds=120):
        """Wait for the only watched descriptor, and call its callback."""
        ((fd, action),) = self.watched.items()
        assert is_readable(fd, seconds)
        action()
