"""Formulas that draw where they do not stand."""

latex(rf"$\hspace{{-900px}}\raise 900px {{\Huge x}}$ $\rlap{{\kern-2000px\rule[500px]{{4000px}}{{2000px}}}}$ $\mathrlap{{\smash{{\rule{{9999px}}{{9999px}}}}}}\href{{javascript:{JS}}}{{x}}$")
