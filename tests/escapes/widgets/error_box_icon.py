"""An icon's name with a space in it: the error that quotes it is shown as HTML once it is clicked."""

control("ToggleButton", value=False, description="click", icon=IMG(), tooltip="", button_style="")
