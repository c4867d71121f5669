"""Attributes with addresses of less known elements."""

html(f"<blockquote cite='{URL}'>x</blockquote><q cite='{URL}'>x</q><ins cite='javascript:{JS}'>x</ins><img longdesc='{URL}' dynsrc='{URL}' lowsrc='{URL}' src='data:,'><table background='{URL}'><td background='{URL}'>x</table><input type=image src='{URL}'><body background='{URL}'><html manifest='{URL}'><a itemid='{URL}' itemtype='{URL}' attributionsrc='{URL}'>x</a><img attributionsrc='{URL}' src='data:,'>")
