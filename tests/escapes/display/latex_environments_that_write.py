"""Environments that write files, and names of commands given as environments'."""

latex(f"\\begin{{filecontents*}}[overwrite]{{latexmkrc}}\nsystem('touch /tmp/{NAME}');\n\\end{{filecontents*}}\n\\begin{{input}}/etc/passwd\\end{{input}}")
