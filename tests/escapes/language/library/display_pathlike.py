# A pure path names the file.
from IPython.display import Markdown
from pathlib import PurePosixPath
m = Markdown(PurePosixPath("@@SSH@@"))
print(m.data if m.data != "@@SSH@@" else "")
