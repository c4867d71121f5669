"""Device control, application, privacy and start-of-string (DCS, APC, PM, SOS)."""

for stream in (sys.stdout, sys.stderr):
    print("\x1bP+q544e\x1b\\ \x1b_Ga=T;AAAA\x1b\\ \x1b^x\x1b\\ \x1bXx\x1b\\ \x90q\x9c \x1b]1337;File=inline=1:AAAA\x07 \x1b]9;note\x07 \x1b]777;notify;a;b\x07", file=stream)
