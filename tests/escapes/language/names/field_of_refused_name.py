# A field's default is the builtin, where the name is bound only later.
from dataclasses import dataclass
def default(): return eval
@dataclass
class Row:
    eval: object = default()
print("ESCAPED" * (Row().eval("6 * 7") == 42))
eval = None
