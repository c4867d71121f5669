# The unix loop's child watcher.
# unseen: Python itself refuses it today
import asyncio
loop = asyncio.get_running_loop()
for n in ("_child_watcher_callback", "_signal_handlers", "_unix_server_sockets", "_asyncgens", "_transports"):
    print(n, getattr(loop, n, None))
loop._signal_handlers[2] = asyncio.Handle(print, ("x",), loop)
