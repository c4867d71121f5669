import numpy as np
m = np.memmap("work/m.dat", dtype="float64", mode="w+", shape=(1000, 1000))
m[:] = 1.5
m.flush()
again = np.memmap("work/m.dat", dtype="float64", mode="r", shape=(1000, 1000))
assert again.sum() == 1_500_000
fmt = np.lib.format.open_memmap("work/m.npy", mode="w+", dtype="int32", shape=(10,))
fmt[:] = 7
del fmt
assert np.load("work/m.npy", mmap_mode="r").sum() == 70
copy = np.load("work/m.npy", mmap_mode="c")
copy[0] = 1
assert copy.sum() == 64
