# An index with brackets and colons before the attribute.
import heapq
print("ESCAPED", "{0[a:}b].__globals__}".format({"a:}b": heapq.merge}))
