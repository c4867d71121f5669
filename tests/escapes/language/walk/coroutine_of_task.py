# The coroutine's frame.
import asyncio
async def main():
    c = asyncio.current_task().get_coro()
    print("ESCAPED", getattr(c, "cr_frame", None) or 1/0)
await main()
