"""Classes, ids, styles and attributes in formulas."""

latex(rf"$\class{{jp-Dialog}}{{x}} \cssId{{jupyter-config-data}}{{y}} \style{{position:fixed;inset:0;background:url({URL})}}{{z}} \data{{commandlinker-command=terminal:create-new}}{{w}}$")
