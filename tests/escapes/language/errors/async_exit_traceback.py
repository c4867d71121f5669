# __aexit__ gets a traceback.
class C:
    async def __aenter__(self): return self
    async def __aexit__(self, t, e, tb): print("ESCAPED", tb.tb_frame.f_back); return True
async with C(): 1/0
