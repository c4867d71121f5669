"""Names of LaTeX's own, which hold an at sign."""

latex(rf"\makeatletter\@@input /etc/passwd \@input{{/tmp/{NAME}}}\makeatother")
