"""Scripts and handlers in a drawing."""

svg(f"<svg xmlns='http://www.w3.org/2000/svg' onload='{JS}'><script>{JS}</script><script href='{URL}'/><rect width='9' height='9' onclick='{JS}'/></svg>")
