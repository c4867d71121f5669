import asyncio, os
async def fill(q):
    for n in range(3):
        await q.put(n)
        await asyncio.sleep(0.001)
async def main():
    q = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        group.create_task(fill(q))
        got = [await q.get() for _ in range(3)]
    r, w = os.pipe()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(r, "rb"))
    os.write(w, b"line\n")
    os.close(w)
    assert await reader.readline() == b"line\n"
    return got
assert await main() == [0, 1, 2]
