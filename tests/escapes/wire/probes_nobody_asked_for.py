# what it tried, told while it serves
# ends: protocol
send({"type": "tried", "results": {"tcp": {"outcome": "refused", "detail": "EPERM"}}})
wait()
