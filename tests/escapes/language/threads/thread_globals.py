# The class of a pool's thread.
from concurrent.futures import ThreadPoolExecutor
ex = ThreadPoolExecutor(1); ex.submit(int).result()
t = list(ex._threads)[0]
canary(t._target); canary(t._stderr if hasattr(t, "_stderr") else None)
print("ESCAPED", t._target.__globals__)
