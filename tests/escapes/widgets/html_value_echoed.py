"""A value that is said to echo what the user typed."""

made = control("HTML", value="nothing here")
made.send({"method": "echo_update", "state": {"value": IMG()}, "buffer_paths": []})
