"""Commands under other names."""

latex(rf"$\def\a{{\href}}\a{{javascript:{JS}}}{{x}}$ $\let\b=\href \b{{javascript:{JS}}}{{x}}$ $\newcommand{{\c}}[1]{{\href{{#1}}{{x}}}}\c{{javascript:{JS}}}$ $\csname href\endcsname{{javascript:{JS}}}{{x}}$ $\hr^^65f{{javascript:{JS}}}{{x}}$")
