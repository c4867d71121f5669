# %output without end
# ends: any
flood({"type": "show", "what": "output", "argument": "1 stderr last"})
