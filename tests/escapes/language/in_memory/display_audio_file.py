# Sound from a file.
from IPython.display import Audio
print("ESCAPED", Audio(filename="@@SSH@@").data)
