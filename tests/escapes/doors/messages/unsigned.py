"""P1: a message with an empty signature."""


def change(frames):
    frames[1] = b""
