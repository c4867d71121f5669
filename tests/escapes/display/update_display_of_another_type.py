"""A display that changes its type."""

display(HTML("<b>a</b>"), display_id=NAME)
update_display({"application/javascript": JS, "text/html": f"<img src=x onerror={JS}>"}, display_id=NAME, raw=True)
