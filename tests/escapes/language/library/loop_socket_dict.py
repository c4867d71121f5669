# The same through the instance's namespace.
import asyncio
loop = asyncio.get_running_loop()
S = type(loop.__dict__["_ssock"])
s = S(2, 1)
print("ESCAPED", s.connect_ex(("127.0.0.1", 9)))
