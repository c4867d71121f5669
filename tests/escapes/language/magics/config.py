# A configuration that runs text.
# unseen: what it changes or prints is out of the witnesses' sight
%config InlineBackend.rc = __import__("os").uname()
