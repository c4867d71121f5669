"""A session: one user's cells, run one after another in a guest under one policy.

Invariant: a request is answered exactly once, whatever the guest does, and a limit ends what runs
over it. Nothing here knows of a protocol: fronts (``jupyter``, ``api``, ``batch``) ask a
``Session`` and are told through a ``Front``.

In the order they are met: ``config`` (what a session is made from) and ``build`` (making it),
``session`` (what fronts ask), ``requests`` (the requests on their way), ``limits`` (time, memory
and scratch watched while a cell runs), ``narrowing``, ``history``; ``types`` and ``settings`` are
what these share.
"""
