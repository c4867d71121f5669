"""P1: another header under a proper signature."""


def change(frames):
    frames[2] = frames[2].replace(b"execute_request", b"execute_request ")
