"""Code that says it is another format's own: pandoc copies it into LaTeX or reStructuredText."""

markdown("`\\input{/etc/passwd}`{=latex}\n\n``` {=rst}\n.. include:: /etc/passwd\n```\n\n~~~{ =asciidoc}\ninclude::/etc/passwd[]\n~~~\n")
