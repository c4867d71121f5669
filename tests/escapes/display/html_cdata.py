"""CDATA in HTML and in foreign content."""

html(f"<![CDATA[<img src=x onerror={JS}>]]><svg><![CDATA[><img src=x onerror={JS}>]]></svg><math><![CDATA[<!--]]><img src=x onerror={JS}>--></math>")
