"""Links that are scripts, aimed at the page."""

html(f"<a target=_top href='javascript:{JS}'>top</a> <a target=_parent href='javascript:{JS}'>parent</a> <a target=_self href='javascript:{JS}'>self</a>")
