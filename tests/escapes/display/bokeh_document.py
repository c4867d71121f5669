"""Bokeh's types: its loader and its document are scripts."""

show("application/vnd.bokehjs_load.v0+json", JS)
show("application/vnd.bokehjs_exec.v0+json", "", server_id="x", id="y")
show("application/vnd.holoviews_exec.v0+json", JS)
show("application/vnd.holoviews_load.v0+json", JS)
