"""PURE: findings, gaps and outcomes in, mime bundles out.

Invariant: text that comes in (source excerpts, module names, policy values) leaves escaped, with
control, bidirectional and invisible characters spelled out. Nothing here reads a file, an
environment variable or a clock, and no card refers to anything remote.

- ``text``: plain text for terminals: visible characters, widths, wrapping, what the host asks a
  user, the lines in which two texts differ;
- ``cards``: what all cards share, and ``make_card``, which makes a bundle of a card's parts;
- ``allowing``: the lines of a policy file that allow what was refused, as one block, and where it
  goes;
- ``outcomes``: what was refused, a cell, a widget or a comm; a cell that was ended from outside, or
  undone, or refused something as it ran;
- ``policy_card``: gaps, the table of ``%policy``, a policy that became narrower;
- ``tables``: what ``%tools``, ``%template``, ``%usage``, ``%output`` and ``%changes`` show,
  branches, and a cell's files;
- ``headings``: the headings of a reply to a language model; ``for_models``: remedies for one.

To change a card's title or words, edit the function that returns it: plain text, HTML and JSON are
made side by side there, and JupyterLab's extension draws the JSON. This package may import
``policy``, ``analysis`` and ``wire``, and no effect.
"""
