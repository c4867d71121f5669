# A submodule under a harmless name.
import concurrent.futures.thread as math
print("ESCAPED", math.os)
