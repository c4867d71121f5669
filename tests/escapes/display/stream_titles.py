"""Window titles and icon names (OSC 0, 1, 2)."""

for stream in (sys.stdout, sys.stderr):
    print(f"\x1b]0;{NAME}\x07 \x1b]1;{NAME}\x1b\\ \x1b]2;{NAME}\x9c", file=stream)
