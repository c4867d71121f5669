"""The same in the name of a code block's language."""

markdown(f"""```$" onmouseover="{JS}" x="$
code
```

~~~ $" onmouseover="{JS}" x="$
hover over this code
~~~
""")
