"""HTML within a drawing."""

svg(f"<svg xmlns='http://www.w3.org/2000/svg'><foreignObject width='99' height='99'><body xmlns='http://www.w3.org/1999/xhtml'><img src='x' onerror='{JS}'/><iframe src='{URL}'/></body></foreignObject></svg>")
