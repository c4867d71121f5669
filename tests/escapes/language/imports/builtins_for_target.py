# The same as a loop variable.
for __builtins__ in [{}]: pass
print("ESCAPED")
done = True
