# A trait that runs text.
# unseen: what it changes is out of the witnesses' sight
%config InteractiveShell.ast_node_interactivity = __import__("os").system("true") or "all"
