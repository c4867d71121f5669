confined = "EPERM"
def attack(w):
    call("capset", space(struct.pack("=Ii", 0x20080522, 0)), space(24))
