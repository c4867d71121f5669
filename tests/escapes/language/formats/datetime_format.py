# A date's format hook with an attribute in the spec.
import datetime, heapq
print("ESCAPED", "{0:{1.__globals__}}".format(datetime.datetime.now(), heapq.merge))
