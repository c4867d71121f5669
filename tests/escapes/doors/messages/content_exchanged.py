"""P1: another content under a proper signature."""


def change(frames):
    frames[5] = frames[5] + b" "
