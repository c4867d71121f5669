"""An import map and a template that a script would use."""

html(f'<script type=importmap>{{"imports":{{"a":"{URL}"}}}}</script><template><script>{JS}</script></template><script type=text/x-mathjax-config>{JS}</script>')
