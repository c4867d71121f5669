"""Styles in Markdown that draw over the lines around."""

markdown("""<div style="height:0;display:flex;align-items:flex-end"><div style="background:#fff">x</div></div>

<span style="padding:500px;background:#fff">x</span> <span style="font:500px/0 serif">x</span> <span style="line-height:0;font-size:500px">x</span>
""")
