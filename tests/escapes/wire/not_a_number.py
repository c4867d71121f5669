# NaN and infinities in a bundle
# ends: ok
send({"type": "display", "data": {"application/json": [float("nan"), float("inf"), float("-inf")], "text/plain": "x"}})
