# What the generated __repr__ closes over.
# unseen: Python itself refuses it today
from dataclasses import dataclass
@dataclass
class D: x: int
for c in D.__repr__.__closure__ or ():
    canary(c.cell_contents)
    print("ESCAPED", c.cell_contents.__globals__)
