# results without end
# ends: any
flood({"type": "result", "data": {"text/plain": "x"}})
