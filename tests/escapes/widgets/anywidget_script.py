"""anywidget: a widget that brings its script along."""

widget("anywidget", "AnyModel", "AnyView", version="~0.11.*", _anywidget_id="a.B", _css="",
       _esm=f"{JS}; export default {{ render() {{ {JS} }} }}")
