# A shell escape in the body of %%capture.
%%capture c
!uname -r | rev
# --- cell
print(c.stdout)
