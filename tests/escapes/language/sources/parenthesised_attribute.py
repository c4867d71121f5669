# An attribute after brackets and comments.
import heapq
print("ESCAPED", (heapq.merge
    # a comment
    .__globals__))
