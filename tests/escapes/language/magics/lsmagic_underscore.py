# The same through the last result.
# unseen: what it changes or prints is out of the witnesses' sight
%lsmagic
# --- cell
s = _.magics_manager.shell
print("ESCAPED", s)
