# an exception of no cell
# ends: ok
later(send, {"type": "error", "ename": "E", "evalue": "late", "traceback": []}, seconds=0.2)
