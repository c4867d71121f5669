"""A formula that is a link to a script."""

control("HTMLMath", value="$\\href{javascript:" + JS + "}{click}$")
