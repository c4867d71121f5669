# An archive is written to a path.
import zipfile
with zipfile.ZipFile("@@WDIR@@/a.zip", "w") as z:
    z.writestr("a", "b")
