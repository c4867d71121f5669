"""Tools: functions of the operator, or of a program that has a sandbox, which cells call.

Invariant: the guest sends a tool's name and some bytes; the host decides everything else. A call is
admitted by the broker, approved if the policy demands that, run outside the host's loop, and
answered exactly once.

The parts, in the order in which a call meets them:

- ``broker``: a session's end. Admits or refuses a call, **counts it against the policy's limits**
  (calls of a cell, at once, per second, bytes), has it approved, records it, and answers the guest.
- ``providers``: everything that runs calls for a session. What a call costs besides (tokens,
  written bytes) is counted by its provider.
- ``calls``: what all parts share: ``Call``, ``Answer``, ``Quota``, ``Approval``, ``CallRecord``; a
  call's progress, and the Protocol ``ToolSource`` of what runs calls.
- ``worker``: both ends of a process that runs calls, and may hang, crash or be killed;
  ``worker_messages`` has their messages.
- ``runner``: runs calls, in the worker, or in a program that uses the Python API for the program's
  own functions.
- ``registry``: makes tools of functions, and **validates a call's arguments** against their type
  hints, before anybody is asked about the call and again right before it runs
  (``with_validation``). Language models validate theirs in the host (``llm.read``). It turns a
  result or exception into what a cell may see (``path_free``).
- ``mcp_servers``: tools of the operator's MCP servers, as functions, in a worker of their own.

Imports the wire and ``render.text``; ``providers`` and ``registry`` also ``operations`` and
``llm``, whose calls come by the same way.
"""
