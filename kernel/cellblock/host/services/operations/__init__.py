"""Operations: built-in tools of the host, each granted by a section of the policy.

``ops.read_file``, ``ops.write_file``, ``ops.list_dir``, ``ops.http`` and ``ops.install``.

Invariant: the policy and the value in hand decide what an operation touches. A path is opened once
beneath a root, and the descriptor is used; a host's name is resolved once, and the address is used.
Errors reveal nothing of this machine to a cell.

- ``catalog``: the operations as cells see them, and what a policy grants.
- ``grants``: the grants as they are sent to the worker, and the errors; ``loading`` makes tools of
  them in the worker.
- ``files``, ``http`` (with ``urls``, and ``keys`` for a policy's credentials), ``packages``: the
  operations, which run in a worker of their own, apart from the operator's tools.
- ``tools.providers`` has the host's end, which refuses early and counts written bytes;
  ``tools.registry`` validates arguments.

**To add an operation**: its table in ``policy.operations``, its ``Tool`` in ``catalog``, its
function in a module here, and a line in ``loading``. A call that can be refused by its arguments
alone is refused in ``tools.providers.refusal``.

Imports ``tools``, ``backends`` for the denied paths, and ``addresses``.
"""
