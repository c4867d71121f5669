# A future's condition.
import concurrent.futures
f = concurrent.futures.Future()
print("ESCAPED", type(f._condition).notify.__globals__)
