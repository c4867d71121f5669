"""Types in capitals, which some front ends match all the same."""

show("TEXT/HTML", f"<img src=x onerror={JS}>")
show("Application/JavaScript", JS)
