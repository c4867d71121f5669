# A name out of a codec.
import heapq
print("ESCAPED", getattr(heapq.merge, "__tybonyf__".translate(str.maketrans("tybonyf", "globals"))))
