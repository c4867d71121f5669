"""A comm that opens as a label and again, under the same id, as HTML."""

widget(CONTROLS, "LabelModel", "LabelView", comm_id="twice", value=IMG(), show=False)
widget(CONTROLS, "HTMLModel", "HTMLView", comm_id="twice", value=IMG())
