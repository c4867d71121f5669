# maps whose keys are nothing, numbers, bytes and times
# ends: any
keys = [mp(k) + b"\0" for k in (None, True, 1, 1.5, b"x")] + [b"\xd6\xff\0\0\0\1\0"]
for _ in range(100): send(json(table(b"".join(keys), len(keys))))
