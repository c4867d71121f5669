# The function under a generated __repr__.
from dataclasses import dataclass
@dataclass
class D: x: int
print("ESCAPED", D.__repr__.__wrapped__.__globals__)
