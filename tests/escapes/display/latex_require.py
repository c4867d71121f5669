"""Packages that a formula asks for."""

latex(rf"$\require{{html}}\require{{{URL}}}\href{{javascript:{JS}}}{{x}}$ $\require{{enclose}}\enclose{{circle}}[mathcolor=red,onclick={JS}]{{x}}$")
