# The attribute stands two specs deep.
# unseen: Python itself refuses it today
import heapq
print("ESCAPED", "{0:{1:{2.__globals__}}}".format("x", "y", heapq.merge))
