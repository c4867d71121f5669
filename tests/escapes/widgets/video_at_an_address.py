"""A film and a sound at an address, started by themselves."""

for stem in ("Video", "Audio"):
    widget(CONTROLS, f"{stem}Model", f"{stem}View", format="url", autoplay=True, loop=True, controls=True, width="", height="",
           paths=[["value"]], buffers=[URL.encode()])
