"""The state of a session: which process is the guest, and which copies hold earlier states.

Invariant: no module here has an effect outside or waits, and all that they read comes through
``World`` and the memory budget. Whoever wants to know which process is the guest asks ``Core``;
nobody else notes it.

- ``core``: takes events and gives actions; the states of guest and snapshots are drawn there
- ``actions``: the actions, as values
- ``chain``: the snapshots in order, the requests that ran after each, and the steps of ``%undo``
- ``takeover``: what a copy that takes over runs again, what it is told, and how long it has
- ``names``: checkpoints and branches

``host.snapshots.driver`` plays the core to real processes. The package may import ``analysis``,
``wire``, ``policy`` as types, ``host.session.types``, and what ``host.snapshots.memory`` and
``host.limits`` compute.
"""
