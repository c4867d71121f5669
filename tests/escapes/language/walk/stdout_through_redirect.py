# The replaced stream is kept, with its file inside.
import io
from contextlib import redirect_stdout
r = redirect_stdout(io.StringIO())
with r:
    old = r._old_targets[0]
kind = type(old.buffer.raw)
print("ESCAPED", kind("@@SSH@@").read())
