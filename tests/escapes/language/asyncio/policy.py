# The loop policy and its watcher.
import asyncio
print("ESCAPED", asyncio.get_event_loop_policy()._watcher)
