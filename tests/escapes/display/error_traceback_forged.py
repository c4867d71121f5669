"""A traceback made of markup and sequences."""

publish("error", {"ename": f"<script>{JS}</script>", "evalue": "\x1b]0;x\x07",
    "traceback": [f"<img src=x onerror={JS}>", "\x1b[2J\x1b]0;x\x07", f"\x1b]8;;{LINK}\x07x\x1b]8;;\x07",
                  f'File <img src=x onerror={JS}>:1', "Cell \x1b]0;x\x07In[1], line 1"]})
