"""An image whose bytes are an address."""

widget(CONTROLS, "ImageModel", "ImageView", format="url", width="", height="", paths=[["value"]], buffers=[URL.encode()])
