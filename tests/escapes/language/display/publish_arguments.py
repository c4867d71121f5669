# The publisher given an argument too many.
from IPython.display import publish_display_data
publish_display_data({"text/plain": "x"}, source="x", transient={"a": publish_display_data.__globals__})
print("ESCAPED")
