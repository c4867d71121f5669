# A method put on the printer that libraries share is called by them.
import asyncio, reprlib
reprlib.aRepr.repr_str = lambda text, level: print("ESCAPED") or ""
repr(asyncio.get_event_loop().call_soon(print, "x"))
