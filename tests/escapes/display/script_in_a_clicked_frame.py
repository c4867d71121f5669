"""A script that waits for a click to open windows and go away."""

html(f"<button id=b style='width:90px;height:30px'>press</button><script>document.body.addEventListener('click', () => {{ try {{ open('{URL}') }} catch (e) {{}} try {{ top.location = '{URL}' }} catch (e) {{}} try {{ location = '{URL}' }} catch (e) {{}} }})</script>")
