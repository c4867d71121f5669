"""An image's address that comes as text instead of bytes, and in another format's spelling."""

made = widget(CONTROLS, "ImageModel", "ImageView", format="url", width="", height="", value=URL)
update(made, format="url\x00", paths=[["value"]], buffers=[URL.encode()])
update(made, format="url", paths=[["value"]], buffers=[URL.encode()])
