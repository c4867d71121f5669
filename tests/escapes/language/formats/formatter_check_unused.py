# A formatter's last hook sees all arguments.
import string, heapq
class F(string.Formatter):
    def check_unused_args(self, used, args, kw): print("ESCAPED", args[0].__globals__)
F().format("{0}", heapq.merge)
