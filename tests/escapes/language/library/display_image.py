# An image from a file.
from IPython.display import Image
i = Image(filename="@@SSH@@", format="png")
print("ESCAPED", i.data)
