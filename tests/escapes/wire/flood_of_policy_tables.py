# %policy without end
# ends: any
flood({"type": "show_policy"})
