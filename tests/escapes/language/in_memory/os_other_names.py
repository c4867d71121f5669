# Names that the facade has not, by way of what it has.
import os
for name in ("environ", "open", "listdir", "system", "fork", "sys", "stat", "posix"):
    if (found := getattr(os, name, None)) is not None:
        print("ESCAPED", name)
