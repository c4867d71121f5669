"""The marks that JupyterLab puts where a formula stood."""

markdown(f"""$" onmouseover="{JS}" x="$ [hover](https://example.org "@@0@@") <b title="@@0@@">hover</b> [a](@@0@@) ![@@0@@](data:image/png;base64,iVBORw0KGgo=) https://example.org/@@0@@ @@1@@

```@@0@@
x
```
""")
