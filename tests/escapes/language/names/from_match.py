# A name out of a regular expression.
import heapq, re
print("ESCAPED", getattr(heapq.merge, re.sub("-", "_", "--globals--")))
