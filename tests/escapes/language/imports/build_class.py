# The class builder called.
print("ESCAPED", __build_class__)
