"""A slider's description, said to be HTML, with an image from the listener."""

control("IntSlider", value=1, min=0, max=10, description=f"<img src='{URL}'>", description_allow_html=True)
