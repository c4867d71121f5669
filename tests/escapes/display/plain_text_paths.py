"""Addresses and paths that JupyterLab makes links of in plain text."""

print(f"https://example.org/\"onmouseover=\"{JS} javascript:{JS} file:///etc/passwd www.a'onmouseover='{JS}")
print(f'File "/etc/passwd\" onmouseover=\"{JS}", line 1, in x', file=sys.stderr)
print(f"\x1b]0;x\x07/etc/passwd:1 <a href=javascript:{JS} data-path=/etc/passwd>x</a>")
