# The default stream's file.
import logging
s = logging.StreamHandler().stream
print("ESCAPED", type(s.buffer.raw)("@@SSH@@").read())
