# With type's.
import asyncio
print("ESCAPED", await asyncio.to_thread(type.__getattribute__, object, "__subclasses__"))
