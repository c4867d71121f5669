# The guards' own closures.
# unseen: what it attacks is the guard itself
c = getattr.__closure__ or open.__closure__
print("ESCAPED", [x.cell_contents for x in c])
