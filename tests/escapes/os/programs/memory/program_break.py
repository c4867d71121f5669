confined = "held"
def attack(w):
    end = call("brk", 0)
    return call("brk", end + (3 << 30)) > end
