"""An HTMLMath widget with a handler in a formula's neighbourhood."""

control("HTMLMath", value=f"$x$ {IMG()}")
