# A template that another module lays out.
import heapq, textwrap
print("ESCAPED", textwrap.fill("{0.__globals__}").format(heapq.merge))
