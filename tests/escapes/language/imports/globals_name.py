# The namespace function.
print("ESCAPED", globals())
