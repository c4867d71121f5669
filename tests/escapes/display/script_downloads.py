"""A script that puts files into the reader's downloads and opens windows."""

html(f"<script>try {{ const a = document.createElement('a'); a.href = 'data:text/html,x'; a.download = '{NAME}.html'; document.documentElement.append(a); a.click() }} catch (e) {{}} try {{ open('about:blank') }} catch (e) {{}} </script>")
