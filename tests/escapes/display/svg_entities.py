"""Entities: a bomb, and a file of the machine."""

svg(f"<!DOCTYPE svg [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;'><!ENTITY c SYSTEM 'file:///etc/passwd'><!ENTITY d SYSTEM '{URL}'>]><svg xmlns='http://www.w3.org/2000/svg'><text>&b;&c;&d;</text></svg>")
