"""A Bokeh plot as HTML, with a callback."""

from bokeh.embed import file_html
from bokeh.models import CustomJS
from bokeh.plotting import figure
plot = figure(width=99, height=99)
plot.image_url(url=[URL], x=0, y=0, w=1, h=1)
plot.js_on_event("document_ready", CustomJS(code=f"top.{JS}"))
html(file_html(plot, title=f"<img src=x onerror={JS}>") + f"<script>top.{JS}</script>")
