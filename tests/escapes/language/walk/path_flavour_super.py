# Super() reaches the base's attribute.
from pathlib import PurePosixPath
class P(PurePosixPath):
    def m(self):
        return getattr(super(), "parser", None) or super()._flavour
m = P("a").m()
m = getattr(m, "pathmod", m)
o = m.os
@@LOOT@@
