# A template decoded from bytes.
import heapq, base64
t = base64.b64decode("ezAuX19nbG9iYWxzX199").decode()
print("ESCAPED", t.format(heapq.merge))
