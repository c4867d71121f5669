"""Text that scrolls and highlights by address."""

html(f"<a href='#:~:text=secret' target=_self>x</a><search><input name=q></search><p id=':~:text=a' hidden=until-found onbeforematch={JS}>x</p>")
