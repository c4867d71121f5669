# The namespace's builtins replaced.
__builtins__ = {"x": 1}
print("ESCAPED")
done = True
