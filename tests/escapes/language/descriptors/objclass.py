# A descriptor's class.
# unseen: Python itself refuses it today
import types
print("ESCAPED", types.MethodType.__func__.__objclass__.__func__.__get__(str.join))
