"""Sequences within sequences, which join when the inner goes."""

for stream in (sys.stdout, sys.stderr):
    print("\x1b\x1b]0;x\x07]0;a\x07 \x1b[\x1b[2J2J \x1b]\x1b[0m0;x\x07 \x1b\x9b2J[2J \x1b[3\x0031m \x1b[\x182J", file=stream)
