# A template joined out of harmless pieces.
import heapq
print("ESCAPED", "".join(["{0.__glo", "bals__}"]).format(heapq.merge))
