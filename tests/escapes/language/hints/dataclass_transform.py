# A decorator that writes an attribute of a library function.
import typing, heapq
typing.dataclass_transform()(heapq.merge)
print("ESCAPED", heapq.merge.__dataclass_transform__, heapq.merge.__globals__)
