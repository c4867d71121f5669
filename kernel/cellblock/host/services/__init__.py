"""What the host does for cells that they may not do themselves, each within the policy's bounds.

Invariant: what a cell says and what comes back from outside are both hostile: typed, bounded, and
judged here before anything is done. Code that may hang or crash runs in worker processes.

- ``tools``: the operator's functions. All calls of cells come by its broker.
- ``operations``: the host's own functions: files, HTTP, packages.
- ``secret_values``: reading a key or a token, for the workers of all these.
- ``llm``: calls of language models, which ``llm_client`` makes in a worker.
- ``relay``: connections to listed hosts, which are neighbours in a session's own network. A guest
  connects to one there. The relay, a process on the host's side, takes that, looks the name up,
  judges the address that it finds, connects to that very address, and copies bytes. ``addresses``
  says which may be connected to, for ``operations`` too.
- ``ports``: servers of cells, opened at addresses on the user's loopback. ``port_relay``, a process
  that has entered the session's network, continues what browsers ask for there.
- ``artifacts``: files that cells leave for their user.
- ``exchange``: files that a program puts into the scratch folder, or takes from there.
- ``changes``: what cells staged of the project: listing it, dropping it.
- ``keepable``: why some of it is not kept; ``never_kept``, the names.
- ``keeping``: making it in the project.
- ``adoption``: going on with what the kernel before staged.

Imports ``analysis``, ``wire``, ``policy``, ``backends``, ``render``, and of the host ``guests`` for
processes and ``output.text``; ``keeping`` and ``tools`` also ``audit`` and ``consent``.
"""
