# An abstract class dumps its registries.
import collections.abc, io
b = io.StringIO()
type(collections.abc.Sized)._dump_registry(collections.abc.Sized, b)
print("ESCAPED", collections.abc.Sized.__subclasses__())
