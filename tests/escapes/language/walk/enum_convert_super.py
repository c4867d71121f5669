# The same from a class body's super().
# unseen: Python itself refuses it today
from enum import Enum
class E(Enum):
    @classmethod
    def go(cls):
        return super()._convert_("E", "os", lambda n: True)
print("ESCAPED", E.go())
