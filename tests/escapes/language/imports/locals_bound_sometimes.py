# A soft builtin that the cell only pretends to bind.
if False:
    vars = 1
print("ESCAPED", vars())
