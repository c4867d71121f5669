"""Formulas that swallow the start of code, so that its content is read."""

markdown(f"""$x `` $ <img src=x onerror={JS}> `$`

`$` <img src=x onerror={JS}> $`$

$$
```
$$
<img src=x onerror={JS}>
```
""")
