"""How Sphinx makes the site of these pages; ``make docs`` runs it, and ``make lint`` checks them.

Nothing is asked of the network, neither here nor by a page that somebody opens.
"""

import sys
from pathlib import Path

import cellblock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "cellblock"
author = "The cellblock developers"
project_copyright = f"{author}. BSD 3-Clause licence"
release = version = cellblock.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "card", "drawing"]
exclude_patterns = ["_build"]
nitpicky = True
#: Types in signatures have no page each.
nitpick_ignore_regex = [("py:.*", ".*")]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
highlight_language = "text"

myst_enable_extensions = ["attrs_block"]
myst_heading_anchors = 3
myst_html_meta = {"description": "cellblock: a Jupyter kernel that enforces a policy on every cell"}

#: Pages whose tables take the room of the list of their headings.
WIDE = ("index", "allowlist", "enforcement", "operations", "policy", "threat-model")

html_theme = "pydata_sphinx_theme"
html_title = "cellblock"
html_logo = html_favicon = str(ROOT / "kernelspec" / "cellblock" / "logo-svg.svg")
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_theme_options = {
    "logo": {"text": "cellblock"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "secondary_sidebar_items": {"**": ["page-toc"]} | {page: [] for page in WIDE},
}
# A page that is a section by itself has no neighbours to list.
html_sidebars = {"index": [], "quickstart": []}
