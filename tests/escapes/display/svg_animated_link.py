"""A link whose target an animation sets."""

svg(f"<svg xmlns='http://www.w3.org/2000/svg' width='90' height='30'><a><animate attributeName='href' values='javascript:{JS}'/><set attributeName='href' to='javascript:{JS}'/><text y='20'>x</text></a><a href='javascript:{JS}'><text y='9'>y</text></a><set attributeName='onload' to='{JS}'/></svg>")
