# The same as a starred capture.
match [1]:
    case [*__builtins__]: pass
print("ESCAPED")
done = True
