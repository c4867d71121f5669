# A subclass of property that reads the getter's function.
import heapq, pathlib
print("ESCAPED", pathlib.PurePath.name.fget.__globals__)
