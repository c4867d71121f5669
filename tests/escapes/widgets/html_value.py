"""An HTML widget whose value is an image that fails to load."""

control("HTML", value=IMG())
