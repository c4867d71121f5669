"""A view's name that is replaced before the widget is shown."""

made = control("HTML", value="text", show=False)
update(made, _view_name=IMG())
view_of(made.comm_id)
