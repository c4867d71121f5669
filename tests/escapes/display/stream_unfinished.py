"""Sequences that end in the next write, or never."""

for stream in (sys.stdout, sys.stderr):
    print("\x1b" + "]0;a", file=stream, flush=True); print(f"{NAME}\x07\x1b[3", end="", file=stream, flush=True); print("1m\x1b[", end="", file=stream, flush=True); print("2J\x1b]8;;x", file=stream)
