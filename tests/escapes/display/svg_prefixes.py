"""SVG and XHTML by other prefixes."""

svg(f"<s:svg xmlns:s='http://www.w3.org/2000/svg' xmlns:h='http://www.w3.org/1999/xhtml'><s:script>{JS}</s:script><h:script>{JS}</h:script><h:img src='x' onerror='{JS}'/></s:svg>")
