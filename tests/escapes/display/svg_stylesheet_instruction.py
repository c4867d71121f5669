"""Instructions to the parser: a style sheet, a transformation, a base."""

svg(f"<?xml version='1.0'?><?xml-stylesheet type='text/xsl' href='{URL}'?><svg xmlns='http://www.w3.org/2000/svg' xml:base='{URL}/'><image href='x' width='9' height='9'/><xsl:script xmlns:xsl='http://www.w3.org/1999/XSL/Transform'>{JS}</xsl:script></svg>")
