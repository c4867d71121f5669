import numpy as np
from scipy import io, sparse
io.savemat("work/m.mat", {"a": np.eye(3)})
assert io.loadmat("work/m.mat")["a"].trace() == 3
io.wavfile.write("work/s.wav", 8000, np.zeros(800, dtype="int16"))
assert io.wavfile.read("work/s.wav")[1].shape == (800,)
sparse.save_npz("work/s.npz", sparse.eye(5).tocsr())
assert sparse.load_npz("work/s.npz").trace() == 5
io.mmwrite("work/s.mtx", sparse.eye(4))
assert io.mmread("work/s.mtx").sum() == 4
