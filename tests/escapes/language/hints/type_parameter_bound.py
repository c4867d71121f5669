# A type parameter whose bound is evaluated late.
# python: 3.12
def f[T: __import__("os").environ](): pass
print("ESCAPED", f.__type_params__[0].__bound__)
