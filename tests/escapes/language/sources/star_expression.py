# A starred call with a refused builtin.
print("ESCAPED", *map(eval, ["1"]))
