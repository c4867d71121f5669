# asyncio itself calls what it was handed as a factory.
# unseen: before 3.14 a factory gets no more than the coroutine
import asyncio
loop = asyncio.get_running_loop()
got = []
class Proto:
    def __getattr__(s, n): return lambda *a: None
for name in ("_make_self_pipe", "add_reader", "_add_reader"):
    try:
        loop.set_task_factory(getattr(type(loop), name))
        got.append(loop.create_task(3))
    except Exception:
        pass
loop.set_task_factory(None)
if got:
    print("ESCAPED", got)
