"""Bells, nulls, deletes, shifts, form feeds."""

for stream in (sys.stdout, sys.stderr):
    print("\x07" * 99 + "\0\x7f\x0b\x0c\x0e\x0f\x01\x02\x1a\x1c", file=stream)
