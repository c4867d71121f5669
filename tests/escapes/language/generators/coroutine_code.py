# A coroutine's code.
async def c(): pass
x = c()
try: print("ESCAPED", getattr(x, "cr_" + "code"))
finally: x.close()
