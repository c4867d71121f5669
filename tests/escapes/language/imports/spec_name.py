# The module's own spec.
print("ESCAPED", __spec__)
