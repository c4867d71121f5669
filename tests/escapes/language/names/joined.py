# A name joined of characters.
import heapq
print("ESCAPED", getattr(heapq.merge, "".join(map(chr, [95, 95, 103, 108, 111, 98, 97, 108, 115, 95, 95]))))
