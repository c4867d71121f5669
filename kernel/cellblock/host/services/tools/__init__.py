"""Tools: functions of the operator, or of a program that has a sandbox, which cells call.

Invariant: the guest names a tool and gives bytes; everything else is decided here. A call is
admitted by the broker, approved if the policy wants that, run outside the host's loop, and answered
exactly once.

The parts, in the order in which a call meets them:

- ``broker``: a session's end. Admits or refuses a call, **counts it against the policy's limits**
  (calls of a cell, at once, per second, bytes), has it approved, records it, and answers the guest.
- ``providers``: all that run calls for a session. What a call costs beyond that (tokens, written
  bytes) is counted by its provider.
- ``calls``: ``Call``, ``Answer``, ``Quota``, ``Approval``, ``CallRecord``: what all share; a call's
  progress, and ``ToolSource``, the Protocol of what runs calls.
- ``worker``: both ends of a process that runs calls, which may hang, crash and be killed;
  ``worker_messages``, what they say to each other.
  ``runner`` runs its calls, and those of functions of a program that uses the Python API, in that.
- ``registry``: makes tools of functions, and **validates a call's arguments** against their type
  hints, right before the call and before anybody is asked about it (``with_validation``). Language
  models validate theirs in the host (``llm.read``). Turns a result or exception into what a cell
  may see (``path_free``).
- ``mcp_servers``: tools of the operator's MCP servers, as functions, in a worker of their own.

Imports the wire and ``render.text``; ``providers`` and ``registry`` also ``operations`` and
``llm``, whose calls come by the same way.
"""
