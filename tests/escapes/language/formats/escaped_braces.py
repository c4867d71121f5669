# Escaped braces before the field.
import heapq
print("ESCAPED", "{{}}{0.__globals__}{{".format(heapq.merge) if 0 else "{{}}{0.__globals__}{{}}".format(heapq.merge))
