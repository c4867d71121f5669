"""Formulas in Markdown."""

markdown(rf"$\href{{javascript:{JS}}}{{x}}$ \\(\href{{javascript:{JS}}}{{x}}\\) $$\style{{position:fixed;inset:0}}{{x}}$$")
