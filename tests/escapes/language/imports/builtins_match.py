# The same as a capture.
match {}:
    case __builtins__: pass
print("ESCAPED")
done = True
