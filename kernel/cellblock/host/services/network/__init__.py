"""The relay: what connects guests to the addresses of ``network_access``, and to nothing else.

Invariant: a guest connects nothing itself. It asks over a socket of its own; the relay, a process
of the host's side, looks the name up, judges the address that was found, connects to that very
address, and hands the connected socket in. ``addresses`` is what it judges by; ``relay`` is a
session's end, ``relay_server`` what runs in the process.
"""
