# The runner class by way of asyncio.run's own names.
# unseen: Python itself refuses it today
import asyncio
print("ESCAPED", asyncio.run.__wrapped__.__globals__)
