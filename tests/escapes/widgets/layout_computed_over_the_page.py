"""A margin that is negative only when it is computed."""

layout = widget(BASE, "LayoutModel", "LayoutView", show=False, margin="calc(0px - 400px) 0 0 min(0px, -200px)")
control("HTML", value="covers", layout=ref(layout))
