"""The relay: what connects guests to the addresses of ``network_access``, and to nothing else.

Invariant: a guest connects nothing itself. It asks over a socket of its own; the relay, a process
of the host's side, looks the name up, judges the address that was found, connects to that very
address, and hands the connected socket in. What it judges by is ``allowlist``; ``reach`` is a
session's end, ``server`` and ``names`` are what runs in the process.
"""
