"""A diagram drawn by Mermaid: images and clicks in labels."""

markdown(f"""```mermaid
%%{{init: {{'securityLevel': 'loose'}}}}%%
flowchart LR
  A["<img src='{URL}' onerror='{JS}'>"] --> B
  click B href "javascript:{JS}"
  click A call alert(1)
```

~~~ mermaid
graph TD; A("<img src={URL}>")
~~~

> ``` {{.mermaid}}
> graph TD; A
> ```
""")
