"""Floats and grids that reach beyond their box."""

html("<div style='float:left;width:5000px;height:10px;overflow:visible'><div style='height:5000px;background:#fff'>x</div></div><div style='display:grid;grid-template-columns:repeat(9,5000px)'><i style='grid-row:-9;grid-column:-9'>x</i></div><div style='display:contents;direction:rtl;unicode-bidi:bidi-override'>x</div>")
