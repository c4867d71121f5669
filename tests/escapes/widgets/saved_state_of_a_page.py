"""A notebook's saved widgets, shown as an output, and a view of one of them."""

state = {"version_major": 2, "version_minor": 0, "state": {"saved": {"model_name": "HTMLModel", "model_module": CONTROLS,
    "model_module_version": "2.0.0", "state": {"value": IMG(), "_view_name": "HTMLView", "_view_module": CONTROLS}}}}
display({"application/vnd.jupyter.widget-state+json": state, "text/plain": "state"}, raw=True, metadata={"widgets": state})
view_of("saved")
