"""File names that exporters take for addresses."""

metadata = {"filenames": {"image/png": URL, "image/svg+xml": URL, "image/jpeg": f"javascript:{JS}"}}
publish("display_data", {"data": {"image/png": PIXEL}, "metadata": metadata, "transient": {}})
