"""The same with delimiters and commands as entities."""

html(rf"<p>&#36;&#92;href{{javascript:{JS}}}{{x}}&#36; &dollar;&bsol;href{{javascript:{JS}}}{{x}}&dollar; $\hr&#101;f{{javascript:{JS}}}{{x}}$ &#x24;\style{{position:fixed}}{{x}}&#x24;</p>")
