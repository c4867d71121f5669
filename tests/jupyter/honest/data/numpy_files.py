import numpy as np
a = np.arange(12.0).reshape(3, 4)
np.save("work/a.npy", a)
np.savez_compressed("work/a.npz", a=a, b=a * 2)
np.savetxt("work/a.txt", a, fmt="%.3f")
assert (np.load("work/a.npy") == a).all()
with np.load("work/a.npz") as both:
    assert (both["b"] == a * 2).all()
assert (np.loadtxt("work/a.txt") == a).all()
assert (np.genfromtxt("work/a.txt") == a).all()
