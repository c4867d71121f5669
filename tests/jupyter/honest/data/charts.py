import altair, plotly.express as px
from bokeh.plotting import figure
import pandas as pd
df = pd.DataFrame({"x": [1, 2, 3], "y": [3, 1, 2]})
assert "layout" in px.line(df, x="x", y="y").to_dict()
assert altair.Chart(df).mark_line().encode(x="x", y="y").to_dict()["mark"]
f = figure()
f.line([1, 2], [3, 4])
