import matplotlib.pyplot as plt, numpy as np
fig, axes = plt.subplots(2, 2, figsize=(6, 4), layout="constrained")
x = np.linspace(0, 6, 200)
axes[0, 0].plot(x, np.sin(x), label=r"$\sin \alpha$")
axes[0, 0].legend()
axes[0, 1].hist(np.random.default_rng(1).normal(size=500), bins=30)
axes[1, 0].imshow(np.outer(x, x))
axes[1, 1].scatter(x, np.cos(x), c=x)
fig.colorbar(axes[1, 1].collections[0])
fig.suptitle("Zürich 東京 π")
for kind in ("png", "svg", "pdf", "jpg", "eps", "webp"):
    fig.savefig(f"work/figure.{kind}")
plt.close(fig)
image = plt.imread("work/figure.png")
assert image.shape[2] == 4
