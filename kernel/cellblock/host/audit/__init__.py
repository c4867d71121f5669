"""The audit log: what a session did, one line a record, each bound to the one before it.

Invariant: nothing of a cell starts before its decision is written (promise P9), and no record has
what a cell's text, output or exceptions say unless the policy has ``audit.sources``. Arguments of
tools are on it, but for secret ones: they left the sandbox.

- `recorder`: what a session and its front call.
- `records`: what can be entered. A new kind of record is a class there and one call of
  `Audit.enter`.
- `log`: the files, whose lines are chained by digests, and the records that wait for them; reading
  and verifying them.

May import what the host may, but of ``host.session`` only ``types``, and ``history`` for whether a
file is the user's own; values of consent and services are types only.
"""
