"""Code spans and fences that end sooner for one parser."""

markdown(f"""``` `
<img src=x onerror={JS}>
```

`` ` <img src=x onerror={JS}> ` ``

\\`<img src=x onerror={JS}>`

    <img src=x onerror={JS}>
\x09tab <img src=x onerror={JS}>
""")
