# A pure path's file searcher.
# unseen: what it reaches depends on what else was imported
from pathlib import PurePath
g = PurePath._globber
print("ESCAPED", list(g.scandir("/")))
