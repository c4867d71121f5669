# A task prints its frames with source.
# unseen: what it reaches depends on what else was imported
import asyncio, io
async def main():
    b = io.StringIO()
    asyncio.current_task().print_stack(file=b)
    if "run_programs" in b.getvalue(): print("ESCAPED", b.getvalue())
await main()
