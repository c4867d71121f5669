"""Eight-bit controls."""

for stream in (sys.stdout, sys.stderr):
    print("\x9b31m\x9b2J\x9d0;t\x9c\x90x\x9c\x84\x85\x8d\x98x\x9c\x9ex\x9c\x9fx\x9c", file=stream)
