"""An Output widget that shows a view of a widget that was refused."""

made = widget("anywidget", "AnyModel", "AnyView", comm_id="refused-model", version="~0.9.*", show=False,
              _esm=f"export default {{ render() {{ {JS} }} }}", _anywidget_id="x")
widget(OUTPUT, "OutputModel", "OutputView", msg_id="", outputs=[{"output_type": "display_data", "metadata": {}, "data": {
    "application/vnd.jupyter.widget-view+json": {"version_major": 2, "version_minor": 0, "model_id": "refused-model"}, "text/plain": "x"}}])
