# A str subclass with a template that changes.
import heapq
class S(str): pass
print("ESCAPED", S("{0.__globals__}").format(heapq.merge))
