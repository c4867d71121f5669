"""Bytes that passed as a picture and are said to be an address afterwards."""

made = widget(CONTROLS, "ImageModel", "ImageView", format="png", width="", height="", paths=[["value"]], buffers=[URL.encode()])
update(made, format="url")
