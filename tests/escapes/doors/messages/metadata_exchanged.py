"""P1: metadata that was not signed."""


def change(frames):
    frames[4] = b'{"cellId":1}'
