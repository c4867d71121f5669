"""A base that bends every relative address of the page."""

html(f"<base href='{URL}/'><base target=_blank><img src=x.png>")
