# A generated comparison reads a field of what is no instance.
import dataclasses, contextlib
got = []
class Spy:
    def __eq__(self, other):
        got.append(other)
        return True
class Liar:
    def __init__(self, cls): self.c = cls
    @property
    def __class__(self): return self.c
    def __getattr__(self, name): return Spy()
def read(obj, name):
    D = dataclasses.make_dataclass("D", [name])
    D.__eq__(obj, Liar(type(obj)))
    return got.pop()
# a library's generator: of contextlib.nullcontext's kin, by json's encoder
import json
g = json.JSONEncoder(indent=1).iterencode([{}])
frame = read(g, "gi_frame")
print(frame, read(frame, "f_code"))
b = read(frame, "f_builtins")
print(b["open"], b["__import__"]("os").uname().release)
