# %policy without end
# ends: any
flood({"type": "show", "what": "policy"})
