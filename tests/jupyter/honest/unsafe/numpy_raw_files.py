import numpy as np
a = np.arange(12.0)
a.tofile("work/a.bin")
assert (np.fromfile("work/a.bin") == a).all()
with open("work/b.bin", "wb") as file:
    a.tofile(file)
assert (np.fromfile("work/b.bin", offset=16) == a[2:]).all()
