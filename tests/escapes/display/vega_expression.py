"""A Vega chart with an image mark, a link and a signal."""

show("application/vnd.vega.v5+json", {"$schema": "https://vega.github.io/schema/vega/v5.json",
    "width": 9, "height": 9, "signals": [{"name": "s", "update": "warn(open('about:blank'))"}],
    "marks": [{"type": "image", "encode": {"enter": {"url": {"value": URL},
        "width": {"value": 9}, "height": {"value": 9}, "href": {"value": f"javascript:{JS}"}}}}]})
