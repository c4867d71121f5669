"""Commands after a backslash that is not one, by TeX's \\verb and in code."""

latex(r"\verb\x\\input{/etc/passwd}")
markdown("```\n\\end{verbatim}\\input{/etc/passwd}\n```\n")
