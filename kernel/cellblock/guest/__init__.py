"""HOSTILE once confined: everything that runs in the zygote and in the guests forked from it.

Invariant: nothing here holds a secret, and nothing the host does depends on what is reported
from here beyond its type and size. Only the wire, the analysis, msgspec, IPython and the standard
library are imported: no pydantic, no zmq, no ipykernel.

In the order in which they are met:

- ``container_entry`` and ``reaper`` run before anything of weight is imported.
- ``zygote`` imports, prepares and forks. It never runs a user's byte, and is under its guests'
  locks before it imports what a policy names. Its ``Gatekeeper`` answers the calls that guests'
  gates stop.
- ``setup`` is what a zygote prepares (``library_patches``, ``guards``, ``shell``) and
  how a fork becomes a guest: it confines itself (``confine``) and serves one session. A guest that
  only tries its locks is ``probes``.
- ``server`` takes one request after the other from the ``channel``, and its subshells take some
  beside it; ``runner`` runs a cell, on ``loop``; ``output`` sends what it shows, ``tracebacks``
  what went wrong; ``inspection`` looks names up. ``snapshots`` forks copies that wait,
  ``reserve`` sets memory aside for a cell that makes room.
- ``host_services`` calls the host, ``network`` asks the relay.
- The language layer: ``rewriting`` of a cell's tree, ``guards`` and ``replacements`` at run time,
  ``audit_hook`` last. ``violations`` is what each raises, and what of the guest's own the hook lets
  pass; ``installed`` is where packages are.
"""
