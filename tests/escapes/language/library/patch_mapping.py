# A method put into a library class meets os.environ.
from collections.abc import Mapping, MutableMapping
seen = []
Mapping.get = lambda self, k, d=None: seen.append(self)
print("ESCAPED")
