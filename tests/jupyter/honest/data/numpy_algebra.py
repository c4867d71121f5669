import numpy as np
rng = np.random.default_rng(1)
a = rng.normal(size=(600, 600))
assert np.allclose(a @ np.linalg.inv(a), np.eye(600), atol=1e-6)
u, s, v = np.linalg.svd(a[:200])
assert np.allclose(u @ np.diag(s) @ v[:200], a[:200])
assert np.linalg.eigvalsh(a @ a.T).min() > -1e-6
assert abs(np.linalg.norm(np.fft.ifft(np.fft.fft(a)) - a)) < 1e-8
