# The network card.
import uuid
print("ESCAPED", uuid.getnode(), uuid.uuid1())
