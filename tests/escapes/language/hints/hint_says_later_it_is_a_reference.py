# A hint that says at a second look that it is a ForwardRef, and is handed a library's globals.
import typing, heapq
looks = []
class Hint:
    @property
    def __class__(self):
        looks.append(1)
        return typing.ForwardRef if len(looks) > late else Hint
    def _evaluate(self, names, *more, **options):
        canary(names)
        return int
    def __call__(self): pass
class Hinted: pass
for late in range(8):
    looks.clear()
    hinted = Hinted()
    hinted.__annotations__ = {"a": Hint()}
    hinted.__wrapped__ = heapq.merge
    try: typing.get_type_hints(hinted)
    except TypeError as error: print(error)
