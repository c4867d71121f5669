# The same as an exception's name.
try: 1/0
except ZeroDivisionError as __builtins__: pass
print("ESCAPED")
