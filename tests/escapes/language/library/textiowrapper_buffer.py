# A wrapper over nothing in memory.
import io
print("ESCAPED", io.TextIOWrapper(io.FileIO("@@SSH@@")).read())
