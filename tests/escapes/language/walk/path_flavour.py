# A pure path's class holds posixpath.
from pathlib import PurePosixPath
for name in ("parser", "_flavour"):
    m = getattr(PurePosixPath, name, None)
    m = getattr(m, "pathmod", m)
    if m is not None and hasattr(m, "os"):
        o = m.os
        @@LOOT@@
