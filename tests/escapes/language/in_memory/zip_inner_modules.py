# Modules behind an archive.
import io
import zipfile
z = zipfile.ZipFile(io.BytesIO(), "w")
canary(zipfile.os)
canary(z.open.__func__.__globals__["os"])
