# The suggestions for an ImportError import what it names.
# python: 3.12
import traceback
try: raise ImportError("x", name="antigravity", name_from="y")
except ImportError as e: traceback.format_exception(e)
except BaseException: pass
import asyncio
for t in type.__subclasses__(object): pass
print("ESCAPED")
