"""Entities that Markdown turns into a formula after the commands were looked at."""

markdown(rf"&#36;&#92;href{{javascript:{JS}}}{{x}}&#36; &dollar;\href{{javascript:{JS}}}{{x}}&dollar; &#36;\hr&#101;f{{javascript:{JS}}}{{x}}&#36; &dollar;&bsol;class{{jp-Dialog}}{{x}}&dollar; &#x24;&#x5c;style{{position:fixed}}{{x}}&#x24;")
