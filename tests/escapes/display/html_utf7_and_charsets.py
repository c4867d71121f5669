"""Other encodings: UTF-7, ISO-2022-JP, overlong UTF-8 as bytes."""

html(f"+ADw-script+AD4-{JS}+ADw-/script+AD4-<meta charset=utf-7><img src=x onerror={JS}>")
show("text/html", b"\xc0\xbcscript\xc0\xbe" + f"<img src=x onerror={JS}>".encode())
