"""A comm that is closed and opens anew as another model."""

made = widget(CONTROLS, "LabelModel", "LabelView", comm_id="again", value="x", show=False)
made.close()
widget(CONTROLS, "HTMLModel", "HTMLView", comm_id="again", value=IMG())
