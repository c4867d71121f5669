# A walrus binds the builtins' name in a comprehension.
[__builtins__ := {} for _ in (1,)]
done = 1
print("ESCAPED")
