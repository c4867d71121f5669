"""The site as ``make lint`` has built it: it asks nobody for anything, and no page is lost."""

import re

import pytest

from support.kernels import ROOT

SITE = ROOT / "artifacts" / "site"
LOADED = re.compile(
    r"<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc=\"(?!data:)([a-z]*:?//[^\"]*)\""
    r"|<link\b(?![^>]*rel=\"canonical\")[^>]*\bhref=\"([a-z]*:?//[^\"]*)\""
)

pytestmark = pytest.mark.skipif(not SITE.exists(), reason="make docs or make lint builds the site")


def test_no_page_loads_anything_from_elsewhere():
    pages = list(SITE.rglob("*.html"))
    assert len(pages) > 80
    assert [p.name for p in pages if LOADED.search(p.read_text("utf-8"))] == []
    for sheet in SITE.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", sheet.read_text("utf-8")), sheet


def test_every_page_is_there():
    for page in (ROOT / "docs").rglob("*.md"):
        assert (SITE / page.relative_to(ROOT / "docs")).with_suffix(".html").exists(), page


def test_the_index_of_the_search_is_loaded_where_somebody_searches_alone():
    loading = [p.name for p in SITE.rglob("*.html") if "searchindex.js" in p.read_text("utf-8")]
    assert loading == ["search.html"]
