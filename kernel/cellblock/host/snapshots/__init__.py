"""Snapshots: copies of a guest, made by fork(2), from which a session goes on after a kill.

Invariant: what copies hold is counted and bounded, and a copy that breaks the protocol costs only
itself. ``forking`` makes them, ``store`` keeps them, ``memory`` is what they may take, ``restore``
goes back to one.
"""
