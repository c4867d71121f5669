# The thread class's module.
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as ex:
    ex.submit(int)
    T = type(list(ex._threads)[0])
    print("ESCAPED", T.run.__globals__)
