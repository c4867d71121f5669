"""Comments that end sooner or later than a parser thinks."""

html(f"<!--><img src=x onerror={JS}>--><!-- --!><img src=x onerror={JS}><!--[if IE]><script>{JS}</script><![endif]--><!---><img src=x onerror={JS}>--><img src=x onerror={JS}>")
