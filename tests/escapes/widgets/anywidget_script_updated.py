"""anywidget's script, told to a widget that opened as another."""

made = control("HTML", value="text")
update(made, _model_module="anywidget", _model_name="AnyModel", _view_module="anywidget", _view_name="AnyView",
       _esm=f"{JS}; export default {{ render() {{ {JS} }} }}")
view_of(made.comm_id)
