"""Display ids that are markup, prototypes, very long."""

for name in (f"<img src=x onerror={JS}>", "__proto__", "constructor", "\x1b]0;x\x07", "x" * 900):
    publish("display_data", {"data": {"text/html": f"<img src=x onerror={JS}>"}, "metadata": {}, "transient": {"display_id": name}})
