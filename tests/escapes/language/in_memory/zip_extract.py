# A member is written to a folder.
import io
import zipfile
b = io.BytesIO()
with zipfile.ZipFile(b, "w") as z:
    z.writestr("a/b.txt", "x")
zipfile.ZipFile(b).extractall("@@WDIR@@")
