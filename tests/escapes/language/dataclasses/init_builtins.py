# The builtins of a generated method.
from dataclasses import dataclass
@dataclass
class D: x: int
canary(D.__init__.__builtins__)
print("ESCAPED")
