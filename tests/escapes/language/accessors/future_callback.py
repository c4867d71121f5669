# A future calls the accessor.
import concurrent.futures, heapq
f = concurrent.futures.Future()
got = []
f.add_done_callback(lambda x: got.append(object.__getattribute__(heapq.merge, "__globals__")))
f.set_result(1)
if got: print("ESCAPED", got)
