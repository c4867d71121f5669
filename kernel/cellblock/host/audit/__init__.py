"""The audit log: what a session did, one line a record, each bound to the one before it.

Invariant: nothing of a cell starts before its decision is written (promise P9), and no record says
what a cell's text, output or exceptions say unless the policy has ``audit.sources``. Arguments of
tools are on it, but for secret ones: they left the sandbox.

``records`` are what can be entered, ``log`` the files, whose lines are chained by digests,
``recorder`` what a session and its front call. ``reader`` reads and verifies, ``otel`` exports. A
new kind of record is a class in ``records`` and one call of ``Audit.enter``.
"""
