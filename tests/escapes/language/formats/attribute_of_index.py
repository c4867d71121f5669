# A template reads an attribute of an item.
import heapq
print("ESCAPED", "{0[f].__globals__}".format({"f": heapq.merge}))
