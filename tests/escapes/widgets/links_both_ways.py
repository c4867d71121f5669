"""A link both ways, whose harmless direction hides the other."""

html_ = control("HTML", value="nothing")
text = control("Text", value="", description="")
widget(CONTROLS, "LinkModel", source=[ref(html_), "value"], target=[ref(text), "value"])
update(text, value=IMG())
