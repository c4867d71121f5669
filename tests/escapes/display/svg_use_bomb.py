"""Uses of uses of uses."""

uses = "".join(f"<g id='g{n+1}'><use href='#g{n}'/><use href='#g{n}'/></g>" for n in range(40))
svg(f"<svg xmlns='http://www.w3.org/2000/svg'><image href='{URL}'/><g id='g0'><rect width='9' height='9'/></g>{uses}</svg>")
