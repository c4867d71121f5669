# The namespace of the session.
names = vars()
print("ESCAPED", names["__builtins__"])
