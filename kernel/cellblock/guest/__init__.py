"""HOSTILE once confined: everything that runs in the zygote and in the guests forked from it.

Invariant: nothing here holds a secret, and nothing the host does depends on what is reported
from here beyond its type and size. Only the wire, the analysis, msgspec, IPython and the standard
library are imported: no pydantic, no zmq, no ipykernel.

The zygote imports, prepares and forks; it never runs a user's byte, and is under its guests' locks
before it imports what a policy names. A guest confines itself before its first user byte and serves
one session.
"""
