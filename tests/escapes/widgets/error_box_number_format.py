"""A number format that is markup: the error about it is shown as HTML once it is clicked."""

control("IntSlider", value=1, min=0, max=10, readout_format=IMG())
