"""IPython's own display objects."""

display(HTML(f"<script>{JS}</script>"), Javascript(JS), Javascript(url=None, data=JS, css=[URL], lib=[URL]) if False else HTML(""))
display(IFrame(URL, 10, 10), Image(url=URL), Audio(url=URL), Video(URL), YouTubeVideo("x"), VimeoVideo("1"), ScribdDocument("1"))
display(SVG(f"<svg xmlns='http://www.w3.org/2000/svg' onload='{JS}'/>"), Markdown(f"<img src=x onerror={JS}>"))
