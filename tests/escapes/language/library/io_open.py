# Io's own open.
import io
print("ESCAPED", io.open("@@SSH@@").read())
