# A type parameter of the builtins' name.
# python: 3.12
def f[__builtins__](x: __builtins__): return 1
type __builtins__ = int
print("ESCAPED")
