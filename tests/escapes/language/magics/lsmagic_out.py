# The same through Out.
# unseen: what it changes or prints is out of the witnesses' sight
%lsmagic
# --- cell
for v in list(Out.values()):
    print("ESCAPED", v.magics_manager.magics["line"]["sx"])
