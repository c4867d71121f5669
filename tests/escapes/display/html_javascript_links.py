"""Links that are scripts, plainly and in disguise."""

html(f"""<a href='javascript:{JS}'>a</a> <a href='JaVaScRiPt:{JS}'>b</a> <a href=' &#1; java&Tab;script&colon;{JS}'>c</a> <a href='java
script:{JS}'>d</a> <a href='&#x6A&#x61&#x76&#x61script:{JS}'>e</a> <a href='vbscript:{JS}'>f</a> <a href='view-source:javascript:{JS}'>g</a>""")
