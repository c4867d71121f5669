"""A box over the whole page."""

html("<div style='position:fixed;inset:0;z-index:99999;background:#fff'>Your session has ended</div><div style='position:absolute;top:-9999px;left:0;width:9999px;height:99999px;z-index:9'>x</div><div style='position:sticky;top:0'>x</div>")
