# String.Formatter with its parser replaced.
# unseen: Python itself refuses it today
import string, heapq
class F(string.Formatter):
    def parse(self, s): yield "", "0.__globals__", "", None
print("ESCAPED", F().format("x", heapq.merge))
