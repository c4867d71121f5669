"""Links in a terminal (OSC 8), to the network and to scripts."""

for stream in (sys.stdout, sys.stderr):
    print(f"\x1b]8;;{LINK}\x07a\x1b]8;;\x07 \x1b]8;;javascript:{JS}\x1b\\b\x1b]8;;\x1b\\ \x9d8;;file:///etc/passwd\x9cc", file=stream)
