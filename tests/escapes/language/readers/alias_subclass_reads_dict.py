# A class of a cell's that forwards what the library reads to a class of the library's.
import collections, types
class Record:
    @property
    def __dict__(self): return self
    def update(self, found):
        if "gi_frame" in found: canary(found["gi_frame"].__get__(generate()))
def generate(): yield
class Forwards(types.GenericAlias):
    def __new__(cls, *args): return super().__new__(cls, *args) if args else Record()
of = Forwards(types.GeneratorType, ())
for kind in collections.UserDict, collections.UserList:
    try: kind.__copy__(of)
    except KeyError: pass
