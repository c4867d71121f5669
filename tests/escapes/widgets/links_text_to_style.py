"""A link from a text to a style's background."""

text = control("Text", value=f"url({URL})", description="")
style = widget(CONTROLS, "HTMLStyleModel", "StyleView", view_module=BASE, show=False)
control("HTML", value="painted", style=ref(style))
widget(CONTROLS, "DirectionalLinkModel", source=[ref(text), "value"], target=[ref(style), "background"])
