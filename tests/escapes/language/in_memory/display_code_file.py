# Code from a file.
from IPython.display import Code
print("ESCAPED", Code(filename="@@SSH@@").data)
