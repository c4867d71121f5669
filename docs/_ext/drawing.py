"""A drawing (SVG of ours) becomes part of the page, so that it has the page's own theme.

Where Markdown is read without Sphinx it is an image, and follows the reader's system.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class Drawings(SphinxPostTransform):
    """Put each SVG image of a page into it."""

    default_priority = 200
    formats: ClassVar = ("html",)

    def run(self, **_: object) -> None:
        """Replace the images in this page."""
        for image in list(self.document.findall(nodes.image)):
            if image["uri"].endswith(".svg"):
                drawn = Path(self.env.srcdir, image["uri"]).read_text("utf-8")
                image.replace_self(nodes.raw("", drawn, format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register it."""
    app.add_post_transform(Drawings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
