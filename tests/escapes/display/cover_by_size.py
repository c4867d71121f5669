"""A box so large that nothing else is found again."""

html("<div style='width:99999999px;height:99999999px;font-size:9999999px;line-height:99999;letter-spacing:9999999px;padding:9999999px'>x</div>")
