"""P1: a signature that is no text."""


def change(frames):
    frames[1] = b"\xff" * 64
