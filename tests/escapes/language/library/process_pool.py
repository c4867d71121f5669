# A pool of processes.
from concurrent.futures import ProcessPoolExecutor
print("ESCAPED", ProcessPoolExecutor)
