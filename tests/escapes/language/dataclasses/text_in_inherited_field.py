# A base class brings fields of its own making, whose names are text that is run.
import dataclasses
@dataclasses.dataclass
class Plain:
    a: int = 1
field = dataclasses.field(default=1)
field.name, field.type = "a, self.take(__builtins__)", int
field._field_type = Plain.__dataclass_fields__["a"]._field_type
class Base:
    a = 1
    __dataclass_params__ = Plain.__dataclass_params__
    __dataclass_fields__ = {"a": field}
    def take(self, found): print("ESCAPED", type(found))
@dataclasses.dataclass(init=False, repr=False)
class Derived(Base):
    b: int = 1
Derived() == Derived()
