# A protocol whose member is a refused name.
import typing, heapq
@typing.runtime_checkable
class P(typing.Protocol):
    __globals__: dict
print("ESCAPED" if isinstance(heapq.merge, P) and heapq.merge.__globals__ else "")
