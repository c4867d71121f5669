"""A link from a checkbox to whether another widget's description is HTML."""

box = control("Checkbox", value=True, description="on")
text = control("Text", value="", description=f"<img src='{URL}'>", description_allow_html=False)
widget(CONTROLS, "DirectionalLinkModel", source=[ref(box), "value"], target=[ref(text), "description_allow_html"])
