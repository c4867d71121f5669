# The attribute in a nested spec.
# unseen: Python itself refuses it today
import heapq
print("ESCAPED", "{:{1.__globals__}}".format("x", heapq.merge))
