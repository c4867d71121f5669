"""Links in formulas."""

latex(rf"$\href{{javascript:{JS}}}{{x}}$ $\url{{javascript:{JS}}}$ \(\href{{data:text/html,x}}{{y}}\)")
