"""A link that opens harmless and is given another end later."""

text = control("Text", value=IMG(), description="")
other = control("Text", value="", description="")
html_ = control("HTML", value="")
link = widget(CONTROLS, "DirectionalLinkModel", source=[ref(other), "value"], target=[ref(html_), "placeholder"])
update(link, target=[ref(html_), "value"])
update(link, source=[ref(text), "value"])
