# An exception group's name is the builtins'.
try: raise ExceptionGroup("x", [ValueError()])
except* ValueError as __builtins__: pass
print("ESCAPED")
