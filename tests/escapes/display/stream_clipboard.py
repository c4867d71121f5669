"""Writing and reading the clipboard (OSC 52)."""

for stream in (sys.stdout, sys.stderr):
    print(f"\x1b]52;c;{base64.b64encode(NAME.encode()).decode()}\x07 \x1b]52;c;?\x07", file=stream)
