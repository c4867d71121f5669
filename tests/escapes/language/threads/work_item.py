# A pool's work item.
from concurrent.futures import ThreadPoolExecutor
ex = ThreadPoolExecutor(1)
f = ex.submit(int)
q = ex._work_queue
print("ESCAPED", type(ex).submit.__globals__)
