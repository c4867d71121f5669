"""Text that is there and not seen, over a link."""

html(f"<a href='{LINK}' style='opacity:0;position:absolute;inset:0;display:block'>x</a><label for=jp-x style='position:fixed;inset:0'>x</label>")
