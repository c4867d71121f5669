"""Icons of toggle buttons, whose class list takes more than an icon's name."""

control("ToggleButtons", _options_labels=["one"], index=0, icons=["check jp-Dialog"], tooltips=[IMG()], button_style="", tooltip="")
