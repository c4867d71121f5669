"""Objects, embeds, applets, portals and fenced frames."""

html(f"<object data='javascript:{JS}'></object><object data='{URL}' type=text/html></object><embed src='{URL}'><embed src='javascript:{JS}'><applet code=x archive='{URL}'></applet><portal src='{URL}'></portal><fencedframe src='{URL}'></fencedframe>")
