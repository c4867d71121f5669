# The compiled annotation.
import typing
print("ESCAPED", typing.ForwardRef("1")._ForwardRef__x if 0 else getattr(typing.ForwardRef("1"), "__forward_" + "code__"))
