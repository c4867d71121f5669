# Typing's own import of sys.
import typing
print("ESCAPED", typing.sys)
