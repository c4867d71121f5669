import matplotlib.pyplot as plt, numpy as np
from mpl_toolkits.mplot3d import Axes3D
fig = plt.figure()
axes = fig.add_subplot(projection="3d")
x, y = np.meshgrid(np.linspace(-2, 2, 30), np.linspace(-2, 2, 30))
axes.plot_surface(x, y, np.exp(-x**2 - y**2), cmap="viridis")
fig.savefig("work/surface.png")
plt.close(fig)
