"""The directive ``denial``: a cell, and below it the card that cellblock answers it with.

::

    ```{denial} safe
    import os
    ```

The card is made by the code that makes it in a notebook, so that no page shows one that is out of
date. Where Markdown is read without Sphinx, the cell is what is seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from cellblock.batch.judge import judge_source
from cellblock.policy.load import load_for_check
from cellblock.render.outcomes import denial

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class Denial(SphinxDirective):
    """Show a cell and its denial; the argument is a preset."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the cell and the card.

        Raises an error of the directive where the policy would let the cell run.
        """
        cell, (preset,) = "\n".join(self.content), self.arguments
        policy = load_for_check(preset)
        findings = judge_source(cell, policy.rules())
        if not findings:
            raise self.error(f"policy {preset} does not refuse this cell")
        card = denial(findings, policy_name=preset)["text/html"]
        # Below a page's title no level of headings is left out.
        card = re.sub(r'(?<=aria-level=")\d', lambda level: str(int(level[0]) - 1), card)
        shown = nodes.container(classes=["in-a-notebook"])
        shown += nodes.literal_block(cell, cell, language="python")
        shown += nodes.raw("", card, format="html")
        return [shown]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("denial", Denial)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
