# a map of numbers that share what of their hashes can be shared
# ends: any
keys = [mp(float(m) * 2.0 ** (61 * k)) + b"\0" for m in range(1, 20_000) for k in range(-8, 8)]
send(json(table(b"".join(keys), len(keys))))
