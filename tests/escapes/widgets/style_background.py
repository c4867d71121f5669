"""A style whose background is loaded."""

style = widget(CONTROLS, "HTMLStyleModel", "StyleView", view_module=BASE, show=False, background=f"url({URL})")
control("HTML", value="painted", style=ref(style))
