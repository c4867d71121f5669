# The same through the class's namespace.
from pathlib import PurePath, PurePosixPath, PureWindowsPath
for c in (PurePath, PurePosixPath, PureWindowsPath):
    for v in list(c.__dict__.values()):
        for m in (v, getattr(v, "pathmod", None)):
            try:
                m = m.__get__(None, c)
            except Exception:
                pass
            if hasattr(m, "os"):
                o = m.os
                @@LOOT@@
