# The namespace of a path function.
import os.path
found = os.path.join.__globals__
canary(found["os"])
