# The modules that os.path works with.
from os import path
for name in ("os", "sys", "genericpath", "stat", "exists", "expanduser", "getsize", "realpath"):
    if (found := getattr(path, name, None)) is not None:
        print("ESCAPED", name)
