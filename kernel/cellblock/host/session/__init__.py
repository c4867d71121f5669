"""A session: one user's cells, run one after another in a guest under one policy.

Invariant: a request is answered exactly once, whatever the guest does, and whatever exceeds a limit
is ended. No module here knows Jupyter's protocol. A front (``jupyter``, ``api``) hands in an
``ExecuteRequest``, which never changes, and is called back through its ``Front``.

In the order in which a cell meets them:

- ``config``: resolves a front's options to a policy, the backend that enforces it, and the message
  to the zygote; ``granted_services``: the host's services that the policy grants
- ``narrowing``: the settings that a session enforces, and cells that replace them by narrower ones
- ``session``: decides about a request and has it run; keeps or drops staged changes for the user
- ``requests``: the requests under way, from admitted to done
- ``history``: the cells that were run, across sessions; the data that cells find in ``inputs``
- ``types``: the values that these modules share with fronts, guests and the audit log

The package may import anything of ``host``, and fronts import it. The rest of ``host`` imports
``types``, and some of it ``history`` and ``config``.
"""
