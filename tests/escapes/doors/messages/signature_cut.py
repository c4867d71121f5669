"""P1: a signature's first half."""


def change(frames):
    frames[1] = frames[1][:32]
