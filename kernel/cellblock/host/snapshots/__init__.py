"""Snapshots: copies of a guest, made by fork(2), from which a session goes on after a kill.

Invariant: what copies hold is counted and bounded, and a copy that breaks the protocol costs only
itself.

- ``store``: when a snapshot is taken, how it is made and how long it is kept; its states are drawn
  there.
- ``chain``: the snapshots in order, what ran after each, and so what ``%undo`` can go back to.
- ``memory``: what they cost, and whether one more can be afforded.
- ``restore``: a snapshot takes over from a guest that was lost.
- ``branches``: checkpoints that a session goes on from by turns.

``host.guests.supervisor`` has them. May import ``wire``, ``errors`` and the host's ``guests`` and
``session``.
"""
