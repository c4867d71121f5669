"""Copies of a guest, made by fork(2), from which a session goes on after a kill.

Invariant: the memory that copies hold is counted and bounded, and a copy that breaks the protocol
costs only itself.

- ``driver``: the real processes, on which it carries out what ``host.state`` decides
- ``memory``: what copies cost, and whether one more can be afforded

``host.guests.supervisor`` owns the driver. The package may import ``wire``, ``errors``,
``host.state``, and the host's ``guests`` and ``limits``.
"""
