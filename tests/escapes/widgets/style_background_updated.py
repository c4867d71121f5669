"""A style that is told a background by other functions that load."""

style = widget(CONTROLS, "LabelStyleModel", "StyleView", view_module=BASE, show=False)
control("Label", value="painted", style=ref(style))
for value in (f"image-set('{URL}' 1x)", f"u\\72l({URL})", f"-webkit-image-set(url({URL}) 1x)", f"cross-fade(url({URL}), red)"):
    update(style, background=value)
