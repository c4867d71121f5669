"""A declarative shadow root with a script and a slot."""

html(f"<div><template shadowrootmode=open><script>{JS}</script><img src=x onerror={JS}><style>:host{{position:fixed;inset:0}}</style></template></div>")
