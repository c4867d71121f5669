# A type parameter's default opens.
# python: 3.13
def f[T = open](): pass
print("ESCAPED", f.__type_params__[0].__default__("@@SSH@@").read())
