"""Sandboxes: cells run from a program, under the policy and the locks that a kernel has.

Invariant: a sandbox is a front over one session, as the Jupyter kernel is; nothing here decides
whether a cell runs, and no output reaches the caller but through the host's output gateway.

- ``sandbox``: ``AsyncSandbox``, and pools of sandboxes that share a zygote;
- ``blocking``: ``Sandbox`` and ``SandboxPool``, the same for programs without a loop;
- ``front``: one sandbox's end of its session: outputs, questions of cells, and the program's own
  answer where its policy asks for consent;
- ``session_file``: what of a sandbox is in a file, which anybody may have written;
- ``results``: ``Result``, and its text for language models; ``cut_text``, how much of a long text
  that looks at; ``result_parts``, what of a result a receipt vouches for; ``receipts``, which are
  signed;
- for language models: ``fences``, code as they write it; ``images``, pictures that a cell showed;
  ``widget_words``, what its widgets show in the end; ``assigned``, what they are told of a cell
  that showed nothing; ``explained``, what of a sandbox.

It may import ``host`` and below, and nothing of Jupyter's. Users import from ``cellblock``.
"""
