"""Formulas in HTML, which JupyterLab typesets."""

html(rf"<p>$\href{{javascript:{JS}}}{{x}}$ \(\style{{position:fixed;inset:0}}{{y}}\) $$\class{{jp-Dialog}}{{z}}$$ \begin{{align}}\cssId{{main}}{{w}}\end{{align}}</p>")
