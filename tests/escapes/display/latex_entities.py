"""Commands behind entities, for pages that hold TeX as text."""

latex(rf"$&#92;href{{javascript:{JS}}}{{x}}$ $&bsol;href{{javascript:{JS}}}{{x}}$ &#36;&#92;style{{position:fixed}}{{x}}&#36; $\href{{javascript:{JS}}}{{x}}$")
