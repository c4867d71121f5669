"""Operations: what the host does for cells by itself, if the policy grants it in a section.

``ops.read_file``, ``ops.write_file``, ``ops.list_dir``, ``ops.http`` and ``ops.install``.

Invariant: what an operation touches is decided by the policy and by the value in hand. A path is
opened once beneath a root, and the descriptor is used; a name is resolved once, and the address is
used. Errors tell a cell nothing of this machine.

- ``catalog``: how cells see the operations, and what a policy grants.
- ``grants``: what crosses to their worker, and the errors; ``loading`` makes them tools there.
- ``tools.providers`` has the host's end. It refuses early, and counts what is written.
- ``files``, ``http`` (with ``urls``, and ``keys`` for a policy's credentials), ``packages``: the
  operations, which run in a worker of their own, apart from the operator's tools.
  ``tools.registry`` validates arguments.

**To add an operation**: its table in ``policy.operations``, its ``Tool`` in ``catalog``, its
function in a module here, and a line in ``loading``. What can be refused by
its spelling alone goes into
``tools.providers.refusal``.

Imports ``tools``, ``backends`` for the denied paths, and ``addresses``.
"""
