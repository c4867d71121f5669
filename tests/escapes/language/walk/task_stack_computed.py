# The same by a computed name.
import asyncio
async def main():
    t = asyncio.current_task()
    print("ESCAPED", getattr(t, "get_" + "stack")()[0])
await main()
