"""An Altair chart whose data and images come from the listener."""

import altair
chart = altair.Chart(URL).mark_image(url=URL).encode(x="a:Q", href="b:N")
display(chart)
html(chart.to_html())
