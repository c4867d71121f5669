# The same as a function.
def __builtins__(): pass
print("ESCAPED")
done = True
