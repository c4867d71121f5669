# Captured output bound to the importer's name.
# unseen: what it changes or prints is out of the witnesses' sight
%%capture __import__
print(1)
# --- cell
import math
print("ESCAPED" if "Captured" in repr(math) else "")
