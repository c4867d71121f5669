# exceptions without end
# ends: any
flood({"type": "error", "ename": "E", "evalue": "x", "traceback": ["x"] * 100})
