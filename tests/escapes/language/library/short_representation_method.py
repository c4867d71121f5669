# A method put on the printer that libraries share is called by them.
import asyncio, reprlib
reprlib.aRepr.repr_str = lambda text, level: print("ESCAPED") or ""
repr(asyncio.get_event_loop().call_soon(print, "x"))
# --- cell
# From Python 3.13 on arguments are shown in debug mode alone.
asyncio.get_event_loop().set_debug(True)
repr(asyncio.get_event_loop().call_soon(print, "x"))
