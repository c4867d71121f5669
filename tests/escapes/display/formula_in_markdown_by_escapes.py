"""Escapes that Markdown takes away before typesetting."""

markdown(rf"\$\\href{{javascript:{JS}}}{{x}}\$ &#36;\\\href{{javascript:{JS}}}{{x}}&#36; \&#36; &#36;\\hr*e*f{{javascript:{JS}}}{{x}}&#36; &#92;(&#92;href{{javascript:{JS}}}{{x}}&#92;) \\\\(\\href{{javascript:{JS}}}{{x}}\\\\)")
