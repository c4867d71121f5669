"""P1: a delimiter and a signature as parts of an identity."""


def change(frames):
    frames[:0] = [b"<IDS|MSG>", b""]
