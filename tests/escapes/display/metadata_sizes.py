"""Widths and heights that are attributes."""

show("image/png", PIXEL, width=f'1" onload="{JS}', height=f"1 onload={JS}", needs_background=f'light" onload="{JS}', unconfined=True, alt=f'" onload="{JS}')
show("image/jpeg", PIXEL, width={"a": f"1 onload={JS}"}, height=[JS])
html(f"<img src=x onerror={JS}>")
