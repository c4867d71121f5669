"""A session: one user's cells, run one after another in a guest under one policy.

Invariant: a request is answered exactly once, whatever the guest does, and what runs over a limit
is ended. Nothing here knows a protocol: a front (``jupyter``, ``api``) hands in an
``ExecuteRequest``, which nothing changes until the reply, and is told through its ``Front``.

In the order they are met:

- ``config``: a front's options resolved to a policy, the backend that enforces it, and what the
  zygote is told; ``granted_services``, what else that policy grants.
- ``narrowing``: the settings that a session enforces, and cells that replace them by narrower ones.
- ``session``: decides about a request, and has it run; what was staged is kept or dropped by the
  host, once a person said so.
- ``requests``: the request under way, from admitted to done, and the guest that runs it.
- ``history``: what was run, across sessions; ``inputs`` for cells.
- ``types``: the values that these share with fronts, guests and the audit log.

May import anything of ``host``; is imported by fronts. The rest of ``host`` imports ``types``, and
some of it ``history`` and ``config``.
"""
