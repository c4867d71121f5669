# pipes and channel set not to block, to signal, to be large
# ends: any
for fd in (1, 2, 3):
    for command, value in ((fcntl.F_SETFL, os.O_NONBLOCK | 0x2000), (fcntl.F_SETOWN, os.getppid()), (10, 9), (1031, 1 << 20)):
        try: fcntl.fcntl(fd, command, value)
        except OSError: pass
end = time.monotonic() + 1
while time.monotonic() < end:
    for fd in (1, 2):
        try: os.write(fd, b"x" * 65536)
        except OSError: pass
for fd in (1, 2, 3): os.set_blocking(fd, True)
