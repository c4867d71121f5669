"""LaTeX's newer language, in whose names there are underscores and colons."""

latex(rf"\ExplSyntaxOn\file_input:n{{/etc/passwd}}\iow_open:Nn\x{{/tmp/{NAME}}}\ExplSyntaxOff")
