# A formatter's hook hands over the object and the template names the attribute.
import string, heapq
class F(string.Formatter):
    def get_value(self, key, args, kw): return heapq.merge
print("ESCAPED", F().format("{x.__globals__}"))
