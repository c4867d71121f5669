# The same after construction.
from IPython.display import Markdown
m = Markdown("x")
m.filename = "@@SSH@@"
m.reload()
print("ESCAPED", m.data)
