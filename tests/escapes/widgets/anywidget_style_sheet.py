"""anywidget's style sheet, which is for the whole page."""

widget("anywidget", "AnyModel", "AnyView", version="~0.11.*", _anywidget_id="a.C",
       _css=f"body {{ background: url({URL}) !important }}", _esm="export default { render() {} }")
