"""Messages of a widget's own that no control knows, and a focus that takes what the user types."""

made = control("Text", value="", description="")
made.send({"method": "custom", "content": {"do": "eval", "code": JS, "html": IMG()}})
made.send({"method": JS, "content": JS})
for _ in range(50):
    made.send({"method": "custom", "content": {"do": "focus"}})
