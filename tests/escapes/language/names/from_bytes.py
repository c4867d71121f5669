# A name out of bytes.
import heapq
print("ESCAPED", getattr(heapq.merge, bytes.fromhex("5f5f676c6f62616c735f5f").decode()))
