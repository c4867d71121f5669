"""Comms to the targets of extensions, which run what they are told."""

for target in ("hv-extension-comm", "bokeh-comm", "matplotlib", "ipympl", "dash", "jupyter.widget.control", "jupyter.widget.version"):
    made = comm.create_comm(target_name=target, data={"content": JS, "script": JS})
    made.send({"method": "update_states", "states": {}, "script": JS, "buffer_paths": []})
