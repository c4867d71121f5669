import matplotlib.pyplot as plt
from matplotlib.animation import FuncAnimation, PillowWriter
fig, axes = plt.subplots(figsize=(2, 2), dpi=40)
line, = axes.plot([], [])
axes.set(xlim=(0, 5), ylim=(0, 5))
def step(n):
    line.set_data(range(n), range(n))
    return (line,)
movie = FuncAnimation(fig, step, frames=4)
page = movie.to_jshtml()
assert page.count("data:image/png;base64") == 4
FuncAnimation(fig, step, frames=3).save("work/movie.gif", writer=PillowWriter(fps=5))
plt.close(fig)
