# A metaclass that is handed the namespace when slots are made.
# unseen: Python itself refuses it today
from dataclasses import dataclass
got = []
class M(type):
    def __new__(m, n, b, d, **k):
        got.append(d); return super().__new__(m, n, b, d)
@dataclass(slots=True)
class D(metaclass=M): x: int = 0
for d in got:
    for k, v in d.items():
        canary(v)
        if "globals" in str(k): print("ESCAPED", k)
