# A decorator that writes into every member.
import typing, heapq
class C: m = heapq.merge
typing.no_type_check(C)
print("ESCAPED", C.m.__globals__)
