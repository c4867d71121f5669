"""Images in formulas."""

latex(rf"$\includegraphics{{{URL}}} \includegraphics[width=9cm]{{/api/terminals}}$ $\bbox[background:url({URL})]{{x}}$ $\unicode[url({URL})]{{x41}}$")
