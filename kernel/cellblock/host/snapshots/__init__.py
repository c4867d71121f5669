"""Copies of a guest, made by fork(2), from which a session goes on after a kill.

Invariant: what copies hold is counted and bounded, and a copy that breaks the protocol costs only
itself.

- ``driver``: the processes, and what ``host.state`` decides about them, done.
- ``memory``: what copies cost, and whether one more can be afforded.

``host.guests.supervisor`` has the driver. May import ``wire``, ``errors``, ``host.state`` and the
host's ``guests`` and ``limits``.
"""
