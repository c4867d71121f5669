"""Macros that grow without end."""

latex(rf"$\def\a{{\a\a}}\a$ $\newcommand{{\x}}{{\x\x}}\x$ $\def\b#1{{#1#1}}\b{{\b{{\b{{\b{{\b{{\b{{\b{{\b{{\b{{\b{{x}}}}}}}}}}}}}}}}}}}}\href{{javascript:{JS}}}{{x}}$")
