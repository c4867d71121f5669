# A command in a branch.
if True:
    got = !cat @@SSH@@
    print("ESCAPED", got)
