# A module that opens resources.
import importlib.resources
print("ESCAPED", importlib.resources)
