# A stream's own name for what it writes to.
import sys
try:
    sys.stdout.name = "modules"
    sys.stdout._name = "modules"
except Exception as error:
    print(error)
for part in ("buffer", "raw", "_fd", "__self__"):
    found = getattr(sys.stdout, part, None)
    if part == "buffer" and found:
        print("ESCAPED", type(found.raw)("@@SSH@@").read())
