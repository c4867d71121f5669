"""A control's view that is to come from somewhere else."""

widget(CONTROLS, "HTMLModel", "HTMLView", view_module=f"{URL}/view.js", value=IMG())
