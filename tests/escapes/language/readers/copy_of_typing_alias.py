# Names of slots that a class makes up, read by copy through an alias.
import copy, typing
class First:
    def __init_subclass__(cls): pass
    def __init__(self): pass
class B(First, type(typing.List[int]).__base__):
    def __setstate__(self, state): canary(state[1]['gi_frame'])
def gen(): yield
g = gen()
b = B()
object.__setattr__(b, "__origin__", g)
B.__slots__ = ["gi_frame"]
copy.copy(b)
