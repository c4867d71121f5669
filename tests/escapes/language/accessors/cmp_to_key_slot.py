# A comparison function that is the accessor.
# unseen: Python itself refuses it today
import functools, heapq
k = functools.cmp_to_key(getattr)
print("ESCAPED", k(heapq.merge) < k("__globals__"))
