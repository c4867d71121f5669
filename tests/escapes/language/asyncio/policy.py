# The loop policy and its watcher.
# seen_until: 3.13
import asyncio
print("ESCAPED", asyncio.get_event_loop_policy()._watcher)
