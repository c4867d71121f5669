"""A tag that is no number: the error that quotes it is shown as HTML once it is clicked."""

control("IntsInput", value=[IMG()], allowed_tags=[], format="d", tag_style="", placeholder="")
