"""Services: what the host does for cells that they may not do themselves, as the policy allows.

Invariant: a cell's request is hostile, and so is an answer from outside. Both are typed, bounded
and judged here before anything is done. Code that may hang or crash runs in worker processes.

Calls:

- ``tools``: the operator's functions. All calls of cells come through its broker.
- ``operations``: the host's own functions: files, HTTP, packages.
- ``llm``: calls of language models, which ``llm_client`` makes in a worker.
- ``secret_values``: reads a key or a token, in the workers of all these.

Network:

- ``relay``: connections to listed hosts, which are neighbours in a session's own network. A guest
  connects to a neighbour. The relay, a process on the host's side, accepts that, looks the host's
  name up, judges the address, connects to that very address, and copies bytes.
- ``addresses``: which addresses may be connected to, by the relay and by ``operations``.
- ``ports``: servers of cells, opened at addresses on the user's loopback. ``port_relay``, a process
  that has entered the session's network, continues browsers' requests there.

Files:

- ``artifacts``: copies files that cells leave for their user.
- ``exchange``: files that a program puts into the scratch folder, or takes from there.
- ``changes``: lists and drops staged changes, the files that cells wrote to the project.
- ``keepable``: the reasons why a staged change is never kept; ``never_kept``: the names.
- ``keeping``: writes staged changes to the project.
- ``adoption``: takes over the staged changes of the kernel before.

Imports ``analysis``, ``wire``, ``policy``, ``backends``, ``render``, and of the host ``guests`` for
processes and ``output.text``; ``keeping`` and ``tools`` also ``audit`` and ``consent``.
"""
