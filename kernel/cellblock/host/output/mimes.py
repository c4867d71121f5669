"""The mime types that a guest may show. A type that is not here is dropped.

``passive`` types are drawn and nothing else; ``markup`` can carry scripts and remote references
and is sanitised; ``active`` ones make the page run code that the kernel's other rules hold.
Not here, because their renderers run code or fetch data for them: scripts; Vega, Plotly and Bokeh
(expressions, data addresses, links); GeoJSON (popups take property texts as HTML, map tiles come
from the network); PDF (a viewer's business).
Nor widgets, whose state and views pass by way of ``widgets``.
Front ends match types by exact spelling, so no parameters and no capitals are known.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Form(StrEnum):
    """How a type's value travels."""

    base64 = "base64"
    json = "json"
    text = "text"


class Trust(StrEnum):
    """What showing a type can do."""

    active = "active"
    markup = "markup"
    passive = "passive"


class Mime(NamedTuple):
    """One row of the table."""

    form: Form
    trust: Trust


ALLOWED: Final[dict[str, Mime]] = {
    "application/json": Mime(Form.json, Trust.passive),
    "application/vnd.dataresource+json": Mime(Form.json, Trust.passive),
    "image/bmp": Mime(Form.base64, Trust.passive),
    "image/gif": Mime(Form.base64, Trust.passive),
    "image/jpeg": Mime(Form.base64, Trust.passive),
    "image/png": Mime(Form.base64, Trust.passive),
    "image/svg+xml": Mime(Form.text, Trust.markup),
    "image/webp": Mime(Form.base64, Trust.passive),
    "text/html": Mime(Form.text, Trust.markup),
    "text/latex": Mime(Form.text, Trust.markup),  # MathJax knows \href
    "text/markdown": Mime(Form.text, Trust.markup),
    "text/plain": Mime(Form.text, Trust.passive),
}
