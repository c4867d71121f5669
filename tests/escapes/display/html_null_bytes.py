"""Null bytes and control characters within names."""

html(f"<scr\x00ipt>{JS}</scr\x00ipt><img src=x on\x00error={JS}><img src=x \x0bonerror={JS}><a href='java\x00script:{JS}'>x</a><\x00img src=x onerror={JS}><img\x00src=x onerror={JS}>")
