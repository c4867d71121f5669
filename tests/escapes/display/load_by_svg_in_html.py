"""Drawings in HTML that refer to others."""

html(f"<svg><image href='{URL}' width=9 height=9 /><image xlink:href='{URL}' width=9 height=9 /><use href='{URL}#x'/><use xlink:href='data:image/svg+xml,x#x'/><filter id=f><feImage href='{URL}'/></filter><rect width=9 height=9 filter='url({URL}#f)' fill='url({URL}#g)' mask='url({URL}#m)'/><style>@import url({URL});rect{{fill:url({URL}#a)}}</style><text style='font:9px x;src:url({URL})'>x</text><script href='{URL}'/></svg>")
