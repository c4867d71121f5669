# %output without end
# ends: any
flood({"type": "show_output", "argument": "1 stderr last"})
