"""Prefixes that only one parser knows."""

html(f"<svg xmlns:x='http://www.w3.org/1999/xlink'><a x:href='javascript:{JS}'><text y=9>x</text></a><html:script xmlns:html='http://www.w3.org/1999/xhtml'>{JS}</html:script></svg>")
