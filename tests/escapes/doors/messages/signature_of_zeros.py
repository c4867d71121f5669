"""P1: a signature that is none."""


def change(frames):
    frames[1] = b"0" * 64
