# %%capture binds a name that the guards look up.
# unseen: without the guards nothing looks it up.
%%capture <read>
1
# --- cell
class A: obj = 3
try: A.obj
except TypeError: print("ESCAPED")
