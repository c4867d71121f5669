# The same as the rest of a mapping.
match {"a": 1}:
    case {**__builtins__}: pass
print("ESCAPED")
done = True
