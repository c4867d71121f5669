# A JSON object from a file.
# unseen: it ends the process or breaks a module, and gets nothing
from IPython.display import JSON
print("ESCAPED", JSON(filename="@@SSH@@").data)
