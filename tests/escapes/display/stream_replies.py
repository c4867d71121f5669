"""Questions whose answers a terminal types (DA, DSR, DECRQSS, title report)."""

for stream in (sys.stdout, sys.stderr):
    print("\x1b[c \x1b[6n \x1b[5n \x1b[21t \x1b[>c \x1bP$qm\x1b\\ \x1bZ \x05 \x1b]10;?\x07 \x1b]4;1;?\x07", file=stream)
