from matplotlib import font_manager
import matplotlib.pyplot as plt
assert font_manager.findfont("DejaVu Sans").endswith(".ttf")
assert font_manager.fontManager.get_font_names()
with plt.xkcd(), plt.style.context("ggplot"):
    fig, axes = plt.subplots()
    axes.plot([1, 2])
    fig.savefig("work/xkcd.png")
plt.close("all")
