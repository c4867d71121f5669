"""Sandboxes: cells run from a program, under the same policies and locks as in a kernel.

Invariant: a sandbox is a front over one session, like the Jupyter kernel. Nothing here decides
whether a cell runs, and all output reaches the caller through the host's output gateway.

- ``sandbox``: ``AsyncSandbox``, and pools of sandboxes that share a zygote;
- ``blocking``: ``Sandbox`` and ``SandboxPool``, the same for programs without a loop;
- ``front``: one sandbox's end of its session: outputs, ``input()``, and the program's approvals;
- ``session_file``: saved sessions; anybody may have written such a file;
- ``results``: ``Result``, and its text for language models; ``cut_text``: cutting long texts
  before they are cleaned;
- ``receipts``: signed receipts of results; ``result_parts``: the parts of a result that they cover;
- for language models: ``fences``: code in Markdown; ``images``: the pictures that a cell showed;
  ``widget_words``: what widgets show in the end; ``assigned``: a sentence on the variable that a
  cell assigned without showing anything; ``explained``: the tools and policy of a sandbox.

It may import ``host`` and the packages below it, but not ``jupyter``. Users import from
``cellblock``.
"""
