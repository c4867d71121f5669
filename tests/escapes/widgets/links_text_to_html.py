"""A link in the page from a text to an HTML widget: the host sees nothing of what it carries."""

text = control("Text", value=IMG(), description="")
html_ = control("HTML", value="")
widget(CONTROLS, "DirectionalLinkModel", source=[ref(text), "value"], target=[ref(html_), "value"])
