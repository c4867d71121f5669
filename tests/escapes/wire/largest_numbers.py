# whole numbers of 64 bits in a bundle
# ends: ok
send({"type": "display", "data": {"application/json": [2**64 - 1, -2**63], "text/plain": "x"}})
