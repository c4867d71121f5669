# A printer that calls us from library frames.
import pprint, heapq
from operator import attrgetter
class P(pprint.PrettyPrinter): pass
P._dispatch = {list.__repr__: attrgetter("__globals__")}
P().pformat([1])
print("ESCAPED")
