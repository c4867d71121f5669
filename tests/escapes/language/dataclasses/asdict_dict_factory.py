# Asdict's factory gets pairs and runs the accessor.
import dataclasses, heapq
@dataclasses.dataclass
class D: f: object
print("ESCAPED", dataclasses.asdict(D(1), dict_factory=lambda p: object.__getattribute__(heapq.merge, "__globals__")))
