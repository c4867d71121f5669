# A file is put into an archive.
import io
import zipfile
b = io.BytesIO()
with zipfile.ZipFile(b, "w") as z:
    z.write("@@SSH@@", "a")
    print("ESCAPED", z.read("a"))
