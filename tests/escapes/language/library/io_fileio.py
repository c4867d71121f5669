# The raw file class.
import io
print("ESCAPED", io.FileIO("@@SSH@@").read())
