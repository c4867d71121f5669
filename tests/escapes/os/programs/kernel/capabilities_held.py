# None is left, whoever asks.
confined = "held"
only_root = True
def attack(w):
    data = space(24)
    call("capget", space(struct.pack("=Ii", 0x20080522, 0)), data)
    return any(data.raw)
