# The loop's class makes another loop.
import asyncio
loop = asyncio.get_running_loop()
L = type(loop)
l2 = L()
print(l2.__dict__.keys())
for k, v in l2.__dict__.items(): canary(v)
s = l2.__dict__.get("_ssock")
if s: print("ESCAPED", s)
l2.close()
