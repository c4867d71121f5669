"""A drawing that loads, as an image and as bytes that were said to be a picture."""

svg_ = f"<svg xmlns='http://www.w3.org/2000/svg' onload='{JS}'><script>{JS}</script><image href='{URL}'/></svg>".encode()
widget(CONTROLS, "ImageModel", "ImageView", format="svg+xml", width="", height="", paths=[["value"]], buffers=[svg_])
made = widget(CONTROLS, "ImageModel", "ImageView", format="png", width="", height="", paths=[["value"]], buffers=[svg_])
update(made, format="svg+xml")
