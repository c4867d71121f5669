"""A model's id that is markup, and a view that names it."""

widget(CONTROLS, "HTMLModel", "HTMLView", comm_id=IMG(), value=IMG())
