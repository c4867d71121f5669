"""References to models that nobody opened, with markup for their ids, and of the wrong kind."""

html_ = control("HTML", value=IMG(), show=False)
control("VBox", children=[f"IPY_MODEL_{IMG()}", IMG(), ref(html_)], box_style="", layout=ref(html_), style=f"IPY_MODEL_{IMG()}")
