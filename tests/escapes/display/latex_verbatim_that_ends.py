"""A command after a backslash that is not one, by TeX's \\verb."""

latex(r"\verb\x\\input{/etc/passwd}")
