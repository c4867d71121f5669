# A library descriptor reads into a foreign namespace.
# unseen: it ends the process or breaks a module, and gets nothing
from functools import cached_property
import json
p = cached_property(lambda self: 1)
p.attrname = "x"
p.__get__(json, type(json))
print("")
