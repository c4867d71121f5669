"""A Plotly figure with a link, a layout image and a topology address."""

show("application/vnd.plotly.v1+json", {"data": [{"x": [1], "y": [1],
    "text": f"<a href='javascript:{JS}'>x</a>"}], "layout": {"title": f"<a href='javascript:{JS}'>t</a>",
    "images": [{"source": URL, "x": 0, "y": 1, "sizex": 1, "sizey": 1}]},
    "config": {"plotlyServerURL": URL, "topojsonURL": URL}})
