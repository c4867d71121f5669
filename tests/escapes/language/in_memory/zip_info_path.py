# What an archive knows of a file.
import zipfile
print("ESCAPED", zipfile.ZipInfo.from_file("@@SSH@@").file_size)
