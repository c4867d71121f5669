# An alias that is rebuilt by our own class.
import typing
class A(typing._GenericAlias if hasattr(typing, "_GenericAlias") else object, _root=True): pass
print("ESCAPED" if A.copy_with.__globals__ else "")
