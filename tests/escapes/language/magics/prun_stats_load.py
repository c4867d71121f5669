# A profile's statistics class reads a marshalled file.
# unseen: what it changes or prints is out of the witnesses' sight
s = %prun -q -r 1+1
type(s)("@@SSH@@")
print("ESCAPED", s.sort_arg_dict_default and s.__class__.__init__.__globals__)
