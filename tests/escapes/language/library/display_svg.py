# An SVG from a file.
# unseen: it ends the process or breaks a module, and gets nothing
from IPython.display import SVG
print("ESCAPED", SVG(filename="@@SSH@@").data)
