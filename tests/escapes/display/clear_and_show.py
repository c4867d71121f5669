"""Output cleared, then a script."""

print("harmless")
clear_output(wait=True)
html(f"<script>{JS}</script>")
clear_output()
html(f"<img src=x onerror={JS}>")
