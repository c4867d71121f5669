# The same in a walrus.
(__builtins__ := {})
print("ESCAPED")
done = True
