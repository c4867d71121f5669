"""Tags in letters that look like others, or that are joined later."""

markdown(f"<\u017fcript>{JS}</\u017fcript> <\u0130mg src=x onerror={JS}> \uff1cimg src=x onerror={JS}\uff1e <\u2060img src=x onerror={JS}> <\xadimg src=x onerror={JS}> <img\xa0src=x onerror={JS}> <img src=x onerror={JS}>")
