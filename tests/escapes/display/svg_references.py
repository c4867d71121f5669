"""References to other documents."""

svg(f"<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'><image href='{URL}' width='9' height='9'/><image xlink:href='data:image/svg+xml;base64,PHN2Zy8+' width='9' height='9'/><use href='{URL}#a'/><filter id='f'><feImage href='{URL}'/></filter><rect filter='url({URL}#f)' width='9' height='9' style='fill:url({URL})'/><style>@import url({URL}); rect{{fill:url({URL}#x)}}</style><font-face-uri href='{URL}'/><cursor href='{URL}'/><tref href='{URL}'/></svg>")
