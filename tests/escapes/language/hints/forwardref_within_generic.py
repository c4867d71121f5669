# The same, deep in a generic alias.
# seen_until: 3.13
import typing, heapq
class F(typing.ForwardRef, _root=True):
    def _evaluate(self, g, *a, **k):
        canary(g)
        return int
heapq.merge.__annotations__ = {"x": typing.Optional[typing.List[F("1")]]}
typing.get_type_hints(heapq.merge)
