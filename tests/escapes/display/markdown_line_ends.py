"""Lines that end in other ways: CR, NEL, LS, PS, form feed, null."""

tag = f"<img src=x onerror={JS}>"
markdown(f"a\r{tag}\x85{tag}\u2028{tag}\u2029{tag}\x0c{tag}\0{tag}<im\0g src=x onerror={JS}>")
markdown(f"[x](java\0script:{JS}) [x](java\rscript:{JS})")
