"""A layout that moves a widget out of its place and over the page."""

layout = widget(BASE, "LayoutModel", "LayoutView", show=False, margin="-400px 0 0 -200px", top="-300px", left="-150px",
                width="1500px", height="900px", overflow="visible")
control("HTML", value="<div style='background:red;width:1500px;height:900px'>covers</div>", layout=ref(layout))
