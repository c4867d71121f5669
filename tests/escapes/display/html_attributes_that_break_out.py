"""Attributes that end where one parser does not look."""

html(f"""<p title='a' title="'><img src=x onerror={JS}>">x</p><p title=`><img src=x onerror={JS}>`>x</p><p a=""b='"><img src=x onerror={JS}>'>x</p><img alt="x" "onerror={JS} src=x>""")
