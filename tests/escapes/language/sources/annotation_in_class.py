# An annotation in a class's body.
class C:
    x: open("@@SSH@@").read()
print("ESCAPED", C.__annotations__)
