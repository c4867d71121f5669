# Whether a path is an archive: it is opened.
import io
import zipfile
class Name(str):
    read = None
for name in ("@@SSH@@", Name("@@SSH@@")):
    try:
        zipfile.is_zipfile(name)
        print("ESCAPED")
    except PermissionError as error:
        print(error)
