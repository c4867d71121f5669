"""Forms: buttons that post to the server, or to scripts."""

html(f"<form action='/api/terminals' method=post id=f><input name=a value=b><button>send</button></form><button form=f formaction='javascript:{JS}'>go</button><form action='{URL}' target=_blank><input type=image src='{URL}'><input type=submit></form><isindex type=submit formaction='javascript:{JS}'>")
