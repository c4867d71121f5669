# A callback run by contextlib.
from contextlib import ExitStack
from functools import partial
import heapq
out = []
with ExitStack() as st:
    st.callback(lambda: out.append(getattr(heapq.merge, "__globals__")))
print("ESCAPED", out)
