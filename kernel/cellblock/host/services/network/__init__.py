"""The relay: connects guests to the addresses in the policy's ``network_access``, and no others.

Invariant: a guest connects nothing itself. It asks the relay, a process on the host's side, over a
socket of its own. The relay looks the name up, judges the address that it finds, begins to connect
to that very address, and hands the socket over.

- ``relay``: the session's end. Starts the process, admits guests, counts what they asked for.
- ``relay_server``: the process.
- ``addresses``: which addresses may be connected to; ``operations`` judges by it, too.

Imports the wire, ``policy.network``, and of the host what starts and protects a process.
"""
