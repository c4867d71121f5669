# the same in frames that are small enough not to be looked through
# ends: any
P1, P2, P5, M = 11400714785074694791, 14029467366897019727, 2870177450012600261, (1 << 64) - 1
def lane(acc, x): acc = acc + x * P2 & M; return (acc << 31 | acc >> 33) * P1 & M
back, keys, a = pow(P2, -1, 1 << 64), [], 0
while len(keys) < 500:
    b = (12345 - lane(P5, a)) * back & M
    if b < 2**61 - 1: keys.append(b"\x92" + mp(a) + mp(b) + b"\0")
    a += 1
flood(json(table(b"".join(keys), len(keys))), seconds=1.0)
