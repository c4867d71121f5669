"""SVG and HTML where a PNG is announced."""

show("image/png", base64.b64encode(f"<svg xmlns='http://www.w3.org/2000/svg' onload={JS}/>".encode()).decode())
show("image/gif", base64.b64encode(f"<html><script>{JS}</script>".encode()).decode())
show("image/png", f'x" onerror="{JS}" a="')
