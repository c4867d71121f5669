# Text that names a file.
from IPython.display import Markdown
m = Markdown("@@SSH@@")
print(m.data if m.data != "@@SSH@@" else "")
