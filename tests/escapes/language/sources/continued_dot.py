# A dot on a continued line.
import heapq
print("ESCAPED", heapq.merge \
    . \
    __globals__)
