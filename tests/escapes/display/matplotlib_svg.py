"""A figure with hostile labels, links and ids."""

import io, matplotlib
matplotlib.use("svg")
from matplotlib import pyplot
figure, axes = pyplot.subplots(figsize=(2, 1))
matplotlib.rcParams["svg.fonttype"] = "none"
axes.set_title(f"</text></svg><img src=x onerror={JS}>")
axes.text(0, 0, "x", url=f"javascript:{JS}", gid=f'"><script>{JS}</script>')
buffer = io.StringIO()
figure.savefig(buffer, format="svg")
svg(buffer.getvalue().replace("</svg>", f"<script>{JS}</script></svg>"))
html(buffer.getvalue())
