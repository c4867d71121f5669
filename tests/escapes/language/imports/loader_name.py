# The module's own loader.
print("ESCAPED", __loader__)
