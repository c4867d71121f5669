# The module argument of make_dataclass.
# python: 3.12
from dataclasses import make_dataclass
D = make_dataclass("D", ["x"], module="subprocess")
print("ESCAPED", D.__init__.__globals__)
