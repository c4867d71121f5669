"""Links to the notebook server itself, taken with its cookies."""

html("<a href='/logout'>a</a> <a href='/lab?reset'>b</a> <a href='../../logout'>c</a> <a href='//127.0.0.1/logout'>d</a> <a href='/files/x.html' target=_blank>e</a> <a href='?reset'>f</a>")
