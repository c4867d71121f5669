# A task's frames.
import asyncio
async def main():
    t = asyncio.current_task()
    print("ESCAPED", t.get_stack()[0])
await main()
