"""Characters that a parser strips, so that the parts join."""

markdown(f"!\0[x]({URL}) !\x7f[x]({URL}) <\0img src={URL}> <\x1b[0mimg src={URL}> !\x1b[0m[x]({URL}) <im\x1b[0mg src={URL}>")
markdown(f"```mer\x1b[0mmaid\ngraph TD; A[\"<img src='{URL}'>\"]\n```")
