# an exception with a traceback as long as a frame
# ends: any
send({"type": "error", "ename": "E" * 1_000_000, "evalue": "v" * 1_000_000, "traceback": ["x"] * 1_500_000})
