# Help on internals.
# unseen: what it changes or prints is out of the witnesses' sight
import heapq
%pinfo heapq.merge.__globals__
