"""PURE: makes cards, which are mime bundles, from findings, gaps and outcomes.

Invariant: text that comes in (source excerpts, module names, policy values) is escaped in what
comes out, with control, bidirectional and invisible characters spelled out. Nothing here reads a
file, an environment variable or a clock, and no card refers to anything remote.

- ``text``: plain text for terminals: visible characters, widths, wrapping, the host's questions to
  its user, the lines in which two texts differ.
- ``cards``: the parts that cards share, and ``make_card``, which makes a bundle of them.
- ``allowing``: the lines of a policy file that would allow what was refused, and where they go.
- ``outcomes``: cards of a cell, widget or comm that was refused, of a cell that was stopped or
  undone, and of a call that the OS layer refused.
- ``policy_card``: cards of gaps, of ``%policy``, and of a policy that became narrower.
- ``tables``: what ``%tools``, ``%template``, ``%usage``, ``%output``, ``%changes`` and ``%branch``
  show, and a cell's files.
- ``headings``: the headings of a reply to a language model. ``for_models``: remedies for a model.

To change a card's title or words, edit the function that returns the card. It makes plain text,
HTML and JSON side by side; JupyterLab's extension draws the JSON. This package may import
``policy``, ``analysis`` and ``wire``. It has no effects.
"""
