"""TeX outside of formulas, which pandoc hands to LaTeX as it is."""

markdown(f"text \\input{{/etc/passwd}} more\n\n\\begin{{filecontents*}}[overwrite]{{latexmkrc}}\nsystem('touch /tmp/{NAME}');\n\\end{{filecontents*}}\n")
