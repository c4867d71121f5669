"""Style sheets by link and import."""

html(f"<link rel=stylesheet href='{URL}'><link rel=icon href='{URL}'><link rel=manifest href='{URL}'><style>@import '{URL}';@import url({URL});</style>")
