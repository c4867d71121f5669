"""A game controller whose buttons are other widgets, which it writes to and closes."""

html_ = control("HTML", value=IMG(), show=False)
control("Controller", index=0, name=IMG(), mapping="", connected=True, timestamp=0, buttons=[ref(html_)], axes=[ref(html_)])
