# A coroutine's __await__ wrapper.
async def c(): pass
x = c(); w = x.__await__()
for n in ("cr_frame", "gi_frame", "__self__"):
    v = getattr(w, n, None)
    if v is not None: print("ESCAPED", v)
x.close()
print("ESCAPED", x.cr_frame)
