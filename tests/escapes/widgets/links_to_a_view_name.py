"""A link from a text to the name of another widget's view."""

text = control("Text", value=IMG(), description="")
html_ = control("HTML", value="text", show=False)
widget(CONTROLS, "DirectionalLinkModel", source=[ref(text), "value"], target=[ref(html_), "_view_name"])
view_of(html_.comm_id)
