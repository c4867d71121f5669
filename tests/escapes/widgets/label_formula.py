"""A label whose formula is a link to a script."""

control("Label", value="$\\href{javascript:" + JS + "}{click}$")
