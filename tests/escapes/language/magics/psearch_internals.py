# Search for internals of a library function.
# unseen: what it changes or prints is out of the witnesses' sight
import heapq
%psearch heapq.merge.__glo*
