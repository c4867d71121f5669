import asyncio, queue, threading, time
from concurrent.futures import ThreadPoolExecutor
box = queue.Queue()
some = [threading.Thread(target=lambda n=n: box.put(n)) for n in range(20)]
[t.start() for t in some]; [t.join() for t in some]
assert sorted(box.queue) == list(range(20))
with ThreadPoolExecutor(8) as pool:
    assert list(pool.map(lambda n: n * n, range(50))) == [n * n for n in range(50)]
ready = threading.Barrier(3, timeout=10)
with ThreadPoolExecutor(3) as pool:
    [f.result() for f in [pool.submit(ready.wait) for _ in range(3)]]
lock, condition, event = threading.RLock(), threading.Condition(), threading.Event()
timer = threading.Timer(0.01, event.set)
timer.start()
assert event.wait(5)
assert await asyncio.gather(*[asyncio.to_thread(lambda n: n + 1, n) for n in range(5)]) == [1, 2, 3, 4, 5]
assert threading.get_native_id() > 0 and threading.stack_size() >= 0
