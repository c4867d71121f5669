"""TRUSTED: the output gateway. Nothing from the guest reaches the front end around it (P4).

Invariant: what leaves here is JSON that can always be encoded as UTF-8, within its bounds, of
mime types the table knows, and free of terminal sequences that do more than colour or redraw
the current line. No function here raises, whatever the guest sent, but ``RefusedError`` and
``TooLargeError`` within the package. What a text costs grows with its length, no faster.

- ``gateway``: the mime types, and a function for each part of a message;
- ``text``: terminal sequences, JSON values, bounds;
- ``readable``: what of a bundle who has text alone can read;
- ``html`` (with Markdown and SVG): sanitisers, with their allowlists; imported when markup is first
  shown;
- ``markup``: ids, classes, links, TeX commands and style sheets in it; ``tex``, the allowlist of
  those commands;
- ``frames``: HTML that needs scripts, in frames of its own;
- ``widgets``: comms, and the states of widgets; ``widget_models``: the widgets, the kinds of keys.

To allow a mime type, add it to ``gateway.ALLOWED``; markup takes a sanitiser too. Allowlists are
tables of families, a family a line. May import ``render.text``, messages of ``wire`` as types, and
the libraries of its sanitisers; ``frames`` also ``host.guests.background``, which makes Vega.
"""
