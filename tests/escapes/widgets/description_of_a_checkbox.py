"""A checkbox, which has a place of its own for its description."""

control("Checkbox", value=True, description=f"<img src='{URL}'>", description_allow_html=True)
