# Members written into a real module's globals.
import enum
@enum.global_enum
class E(enum.Enum):
    __module__ = "json"
    x = 1
print("ESCAPED")
