# A queue's lock and conditions.
import queue
q = queue.Queue()
for v in q.__dict__.values(): canary(v)
print("ESCAPED", type(q.not_empty).wait.__globals__)
