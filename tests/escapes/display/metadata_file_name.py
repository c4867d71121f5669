"""A name for the file that an exporter writes an image to."""

for metadata in ({"filename": f"../../{NAME}.png"}, {"image/png": {"filename": f"/tmp/{NAME}"}}):
    publish("display_data", {"data": {"image/png": PIXEL}, "metadata": metadata, "transient": {}})
