# A keyword argument that normalises.
import heapq
def f(**k):
    for n in k: return getattr(heapq.merge, n)
print("ESCAPED", f(__ｇｌｏｂａｌｓ__=1))
