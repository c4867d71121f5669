# An async generator's frame by a computed name.
async def ag(): yield 1
print("ESCAPED", getattr(ag(), "ag_" + "frame"))
