"""Addresses that become links by themselves, with quotes in them."""

markdown(f"""https://example.org/"onmouseover="{JS} http://example.org/'onmouseover='{JS} <https://example.org/"onmouseover="{JS}> mailto:a@b.c"onmouseover="{JS} xmpp:x ftp://127.0.0.1/x www.a"onmouseover={JS} <img src=x onerror={JS}>""")
