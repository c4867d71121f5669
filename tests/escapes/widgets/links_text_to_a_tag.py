"""A link from a text to a widget of numbers, whose error about it is shown as HTML once it is clicked."""

text = control("TagsInput", value=[IMG()], allowed_tags=[], tag_style="", placeholder="", allow_duplicates=True)
numbers = control("IntsInput", value=[1], allowed_tags=[], format="d", tag_style="", placeholder="", show=False)
widget(CONTROLS, "DirectionalLinkModel", source=[ref(text), "value"], target=[ref(numbers), "value"])
view_of(numbers.comm_id)
