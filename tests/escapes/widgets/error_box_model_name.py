"""A model that is not there, whose name is markup: the error names it."""

widget(CONTROLS, IMG(), "HTMLView")
