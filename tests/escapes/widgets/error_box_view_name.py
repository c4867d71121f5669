"""A view that is not there, whose name is markup: the error names it."""

control("HTML", view=IMG(), value="text")
