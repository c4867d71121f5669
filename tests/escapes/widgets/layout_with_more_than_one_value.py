"""A width that tries to be more than one declaration."""

layout = widget(BASE, "LayoutModel", "LayoutView", show=False, width=f"1px;background:url({URL})", border_top=f"1px solid url({URL})",
                grid_area=f"x}} body {{background:url({URL})", object_position=f"url({URL})", display=f"block;background-image:url({URL})")
control("HTML", value="text", layout=ref(layout))
