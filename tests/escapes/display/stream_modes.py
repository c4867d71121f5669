"""Modes: alternate screen, mouse reports, bracketed paste, reset."""

for stream in (sys.stdout, sys.stderr):
    print("\x1b[?1049h\x1b[?1000h\x1b[?2004h\x1b[?25l\x1b[4h\x1b[20h \x1bc \x1b[!p \x1b(0 \x1b%@ \x1b#8 \x0e\x0f", file=stream)
