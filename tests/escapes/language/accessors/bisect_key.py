# Bisect calls the accessor as key.
# unseen: Python itself refuses it today
import bisect, heapq, operator
print("ESCAPED", bisect.bisect([heapq.merge], 1, key=operator.attrgetter("__globals__")))
