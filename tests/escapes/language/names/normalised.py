# A name that normalisation makes.
import heapq, unicodedata
print("ESCAPED", getattr(heapq.merge, unicodedata.normalize("NFKC", "__ｇｌｏｂａｌｓ__")))
