"""A Styler with hostile captions, classes, style sheets and cells."""

import pandas
frame = pandas.DataFrame({"a": [f"<img src=x onerror={JS}>"]})
style = frame.style.set_caption(f"<script>{JS}</script>").set_table_attributes(f'onmouseover="{JS}" style="position:fixed;inset:0"')
style = style.set_table_styles([{"selector": "td", "props": [("background", f"url({URL})"), ("position", "fixed")]},
                                {"selector": "} * ", "props": "position:fixed"}])
style = style.set_properties(**{"background-image": f"url({URL})"}).format(lambda v: v)
style = style.format(lambda _: f"<a href='javascript:{JS}'>x</a>", escape=None)
display(style)
