"""GeoJSON: popups take properties as HTML, tiles come from the network."""

show("application/geo+json", {"type": "Feature", "properties": {"name": f"<img src=x onerror={JS}>"},
    "geometry": {"type": "Point", "coordinates": [0, 0]}},
    url_template=URL + "/{z}/{x}/{y}.png", layer_options={"attribution": f"<img src={URL}>"})
