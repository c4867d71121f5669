# Names in type parameters.
# python: 3.12
type X[T: open] = int
print("ESCAPED", X.__type_params__[0].__bound__("@@SSH@@").read())
