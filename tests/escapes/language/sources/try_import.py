# An import that is tried and caught.
try:
    import os
except ImportError:
    os = None
print("ESCAPED", os.uname())
