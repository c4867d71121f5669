"""TRUSTED: the output gateway, which cleans everything that a guest shows (promise P4).

Nothing of the guest's reaches a front end without passing a function of this package. Its callers
are ``host.cell`` (outputs, replies, comms) and the fronts (other replies).

Invariant: the result can always be encoded as UTF-8 JSON, is within its bounds, has only the mime
types of the table, and no terminal sequences but those that colour text or redraw the current line.
Whatever the guest sent, no function raises; ``RefusedError`` and ``TooLargeError`` stay within the
package. The time that cleaning takes is at most proportional to the length.

- ``gateway``: the table of mime types, and one function for each part of a message.
- ``text``: terminal sequences, JSON values, bounds.
- ``readable``: the text of a bundle, for readers who have text alone, such as a language model.
- ``html``: sanitisers of HTML, Markdown and SVG, with their allowlists. Imported when markup is
  first shown.
- ``markup``: ids, classes, links, TeX and style sheets within markup. ``tex``: the allowlist of TeX
  commands.
- ``frames``: HTML that needs scripts, in sandboxed frames of its own.
- ``widgets``: comms, and the states of widgets. ``widget_models``: the allowlist of widgets, and
  the kinds of their keys.

To allow a mime type, add it to ``gateway.ALLOWED``, and its sanitiser if it is markup. Allowlists
are tables, with one family of entries a line. May import ``render.text``, messages of ``wire`` as
types, and the libraries of its sanitisers; ``frames`` also ``host.guests.background``, which makes
Vega.
"""
