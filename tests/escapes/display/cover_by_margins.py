"""Margins that pull a box over its neighbours, in every spelling of a number below zero."""

for margin in ("-.99in", "-0.99in", "-9e1px", "0-9px", "-\\39 9px", "calc(-9px)", "calc(0px - 9px)", "/**/-9px", "0 0 -9px", "var(--a)"):
    html(f"<div style='--a:-9px;margin-top:{margin};margin-block-start:{margin};background:#fff'>x</div><style>div{{margin-top:{margin}}}</style>")
