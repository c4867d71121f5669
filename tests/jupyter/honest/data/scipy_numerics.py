import numpy as np
from scipy import fft, integrate, interpolate, linalg, optimize, signal, sparse, spatial, special, stats
rng = np.random.default_rng(2)
a = sparse.random(2000, 2000, density=0.002, rng=rng, format="csr") + sparse.eye(2000) * 9
b = np.ones(2000)
from scipy.sparse import linalg as solvers
x, info = solvers.cg(a @ a.T, b)
assert info == 0 and np.allclose(a @ a.T @ x, b, atol=1e-3)
assert solvers.spsolve(a.tocsc(), b).shape == (2000,)
assert len(solvers.eigsh(a @ a.T, k=3)[0]) == 3
assert abs(integrate.quad(np.exp, 0, 1)[0] - (np.e - 1)) < 1e-9
assert abs(integrate.quad_vec(lambda t: np.array([t, t**2]), 0, 1, workers=1)[0][1] - 1 / 3) < 1e-9
assert integrate.solve_ivp(lambda t, y: -y, (0, 5), [1.0]).success
assert optimize.minimize(optimize.rosen, [0, 0]).fun < 1e-6
assert optimize.linprog([1, 2], A_ub=[[-1, -1]], b_ub=[-1]).status == 0
assert optimize.differential_evolution(optimize.rosen, [(-2, 2)] * 2, rng=1, workers=1).fun < 1e-6
z = rng.normal(size=(64, 4096))
assert np.allclose(fft.ifft(fft.fft(z, workers=2), workers=2).real, z)
assert spatial.cKDTree(z[:, :3]).query(z[:, :3], k=2, workers=2)[0].shape == (64, 2)
assert stats.norm.fit(rng.normal(size=500))[1] > 0.8
assert stats.bootstrap((z[0],), np.mean, n_resamples=99, rng=1).standard_error > 0
assert interpolate.CubicSpline([0, 1, 2], [0, 1, 4])(1.5) > 2
assert linalg.expm(np.zeros((3, 3))).trace() == 3 and special.gamma(5) == 24
assert signal.fftconvolve(z, z[:, :9], mode="same", axes=1).shape == z.shape
