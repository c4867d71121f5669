# The code type.
import types
print("ESCAPED", types.CodeType, types.FunctionType)
