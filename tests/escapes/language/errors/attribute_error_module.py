# AttributeError.obj that is a real module, raised by the library.
import hashlib, zoneinfo, asyncio
def chain(e):
    while e is not None:
        canary(getattr(e, "obj", None)); e = e.__context__
for f in (lambda: hashlib.new("nothing"), lambda: zoneinfo.ZoneInfo("nothing"), lambda: asyncio.nothing):
    try: f()
    except BaseException as e: chain(e)
print("ESCAPED", AttributeError.obj.__get__(e) if 0 else AttributeError.__dict__["obj"].__objclass__)
