"""Moves of the cursor to earlier lines."""

for stream in (sys.stdout, sys.stderr):
    print("\x1b[5A\x1b[2K forged \x1b[1;1H\x1b[2J\x1b[3J \x1bM\x1bD\x1bE \x1b[9S\x1b[9T\x1b[9L \x1b7\x1b8\x1b[s\x1b[u", file=stream)
