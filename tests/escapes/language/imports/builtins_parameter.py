# A parameter of that name.
def f(__builtins__): return __builtins__
print("ESCAPED", f({}))
