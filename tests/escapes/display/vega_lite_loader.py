"""A Vega-Lite chart whose data come from the listener."""

show("application/vnd.vegalite.v5+json", {"$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "data": {"url": URL}, "mark": "point", "encoding": {"x": {"field": "a", "type": "quantitative"}}})
