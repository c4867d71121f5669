"""Markup for the titles of tabs and of an accordion's panes."""

html_ = control("HTML", value="inside", show=False)
for stem in ("Tab", "Accordion", "Stack"):
    control(stem, children=[ref(html_)], titles=[IMG()], selected_index=0, box_style=IMG())
