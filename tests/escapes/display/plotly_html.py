"""A Plotly figure as HTML."""

import plotly.graph_objects as go
figure = go.Figure(go.Scatter(x=[1], y=[1], text=[f"<a href='javascript:{JS}'>x</a>"]))
figure.add_layout_image(source=URL, x=0, y=1)
html(figure.to_html(include_plotlyjs=False) + f"<script>{JS};top.{JS}</script>")
