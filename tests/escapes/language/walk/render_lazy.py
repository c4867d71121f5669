# The same where the shell renders.
# unseen: what it reaches depends on what else was imported
import itertools, heapq, functools
got = []
class E(Exception): pass
E._render_traceback_ = functools.partial(map, got.append, itertools.starmap(getattr, [(heapq.merge, "__globals__")]))
raise E
# --- cell
print("ESCAPED" if got else "")
