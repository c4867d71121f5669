"""A box without height whose content is drawn above it."""

html("<div style='height:0;display:flex;align-items:flex-end'><div style='background:#fff;width:900px'>x<br>x<br>x<br>x</div></div>")
