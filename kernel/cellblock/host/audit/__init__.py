"""The audit log: a record of what a session did, one line each, bound to the line before it.

Invariant: no cell starts before its decision is written (promise P9). No record contains a cell's
text, its output or the text of an exception, unless the policy has ``audit.sources``. Arguments of
tools are recorded, without secret ones, since they left the sandbox.

- `recorder`: the methods that a session and its front end call, one for each event.
- `records`: the records, a class each. A new kind of record is a class there and one call of
  `Audit.enter`.
- `log`: the files, whose lines are chained by digests, and the records that wait while a file can't
  be written; also reading and verifying the files.

May import what the host may, but of ``host.session`` only ``types``, and ``history`` for whether a
file is the user's own; values of consent and services are types only.
"""
