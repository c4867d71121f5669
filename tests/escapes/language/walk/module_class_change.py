# A facade given another class.
import json
class M(type(json)):
    def __getattr__(self, n): return n
json.__class__ = M
print("ESCAPED" if json.codecs is not "codecs" else "")
