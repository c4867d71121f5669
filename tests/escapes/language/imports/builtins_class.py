# The same as a class.
class __builtins__: pass
print("ESCAPED")
done = True
