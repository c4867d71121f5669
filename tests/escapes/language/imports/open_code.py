# Io's other opener.
import io
print("ESCAPED", io.open_code("@@SSH@@").read())
