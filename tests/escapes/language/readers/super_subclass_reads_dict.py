# A class derived from super forwards what the library reads to a class of the library's.
import abc, collections, types
found = []
class Record:
    @property
    def __dict__(self): return self
    def update(self, given): found.append(given)
class Forwards(super):
    def __new__(cls, *args): return super().__new__(cls, *args) if args else Record()
try: collections.UserDict.__copy__(Forwards(abc.ABCMeta, collections.abc.Generator))
except KeyError: pass
if found and type(found[0]) is types.MappingProxyType: print("ESCAPED", list(found[0]))
