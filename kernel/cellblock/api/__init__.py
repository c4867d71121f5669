"""Sandboxes: cells run from a program, under the policy and the locks that a kernel has.

Invariant: a sandbox is a front over one session, as the Jupyter kernel is; nothing here decides
whether a cell runs, and no output reaches the caller but through the host's output gateway.

- ``sandbox``: ``AsyncSandbox``, and pools of sandboxes that share a zygote;
- ``blocking``: ``Sandbox`` and ``SandboxPool``, the same for programs without a loop;
- ``front``: one sandbox's end of its session: outputs, questions of cells, and the program's own
  answer where its policy asks for consent;
- ``session_file``: what of a sandbox is in a file, which anybody may have written;
- ``results``: ``Result``, and its text for language models; ``result_parts``, what of it a receipt
  vouches for; ``receipts``, which are signed.

It may import ``host`` and below, and nothing of Jupyter's. Users import from ``cellblock``.
"""
