"""An HTML widget that tells a listener that it was seen."""

control("HTML", value=f"<img src='{URL}'>")
