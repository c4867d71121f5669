"""P1: a signature spelled in another way."""


def change(frames):
    frames[1] = frames[1].upper()
