"""A widget's view of a model that nobody opened, and a state that carries it."""

state = {"version_major": 2, "version_minor": 0, "state": {"m": {"model_name": "HTMLModel",
    "model_module": "@jupyter-widgets/controls", "model_module_version": "2.0.0",
    "state": {"value": f"<img src=x onerror={JS}>", "_view_name": "HTMLView"}}}}
show("application/vnd.jupyter.widget-state+json", state)
show("application/vnd.jupyter.widget-view+json", {"model_id": f"<img src=x onerror={JS}>",
     "version_major": 2, "version_minor": 0})
