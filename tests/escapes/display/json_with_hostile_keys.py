"""JSON whose keys are prototypes and whose texts are HTML; active elsewhere: metadata."""

hostile = {"__proto__": {"trusted": True, "isTrusted": True}, "constructor": {"prototype": {"x": 1}},
           f"<img src=x onerror={JS}>": f"<img src=x onerror={JS}>", "toString": 1, "toJSON": 1}
show("application/json", hostile, expanded=True, root=f"<img src=x onerror={JS}>")
show("application/javascript", hostile)
