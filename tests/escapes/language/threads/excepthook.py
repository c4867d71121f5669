# What a thread calls when it dies.
from concurrent.futures import ThreadPoolExecutor
ex = ThreadPoolExecutor(1); ex.submit(int).result()
t = list(ex._threads)[0]
h = t._invoke_excepthook
for c in h.__closure__ or (): canary(c.cell_contents)
print("ESCAPED", h.__closure__)
