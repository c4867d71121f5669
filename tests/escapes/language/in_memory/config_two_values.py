# A second statement behind a value.
# unseen: what it changes is out of the witnesses' sight
%config InlineBackend.figure_format = 'png'; import os
