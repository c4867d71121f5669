# The bases of an in-memory stream lead to FileIO.
# unseen: what it reaches depends on what else was imported
import io
for c in type(io.StringIO()).__mro__:
    for n in dir(c):
        v = getattr(c, n, None)
        if getattr(v, "__name__", "") in ("FileIO", "open"):
            print("ESCAPED", v)
