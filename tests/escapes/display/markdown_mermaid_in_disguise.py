"""The same with names that are cut, in capitals, escaped."""

markdown(rf"""```MERMAID
graph TD; A["<img src='{URL}'>"]
```

``` mermaid theme=dark
graph TD; A["<img src='{URL}'>"]
```

```mer\maid
graph TD; A
```

```&#109;ermaid
graph TD; A["<img src='{URL}'>"]
```

    ```mermaid
    graph
    ```
- ```mermaid
  graph TD; A["<img src='{URL}'>"]
  ```
""")
