# A display handle's way to the shell.
from IPython.display import display
h = display(1, display_id=True)
print("ESCAPED", h.display.__func__.__globals__)
