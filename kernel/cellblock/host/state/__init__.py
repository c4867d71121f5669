"""The state of a session: which process is the guest, and which copies hold earlier states.

Invariant: nothing here has an effect outside, waits or reads anything but what it asks for; who
wants to know which process is the guest asks ``Core``, and nobody else notes it.

- ``core``: events in, actions out; the states of guest and snapshots are drawn there.
- ``actions``: what there is to be done, as values.
- ``chain``: the snapshots in order, what ran after each, and so what ``%undo`` can go back to.
- ``takeover``: what is run again and told when a copy takes over, and how long it has.
- ``names``: checkpoints and branches.

``host.snapshots.driver`` plays it to real processes. May import ``analysis``, ``wire``, ``policy``
as types, ``host.session.types``, and what ``host.snapshots.memory`` and ``host.limits`` compute.
"""
