# A pool maps the accessor.
import concurrent.futures, heapq
with concurrent.futures.ThreadPoolExecutor(1) as ex:
    print("ESCAPED", list(ex.map(object.__getattribute__, [heapq.merge], ["__globals__"])))
