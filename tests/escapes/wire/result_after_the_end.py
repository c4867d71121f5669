# a result of no cell
# ends: ok
later(send, {"type": "result", "data": {"text/plain": "late"}}, seconds=0.2)
