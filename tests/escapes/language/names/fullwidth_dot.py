# An identifier in full width after a dot.
import heapq
print("ESCAPED", heapq.merge.__ｇｌｏｂａｌｓ__)
