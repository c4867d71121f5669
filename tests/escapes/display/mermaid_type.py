"""Mermaid's own type: a diagram with a click handler and HTML labels."""

show("text/vnd.mermaid", f'''%%{{init: {{"securityLevel": "loose", "flowchart": {{"htmlLabels": true}}}}}}%%
flowchart LR
  A["<img src='{URL}' onerror='{JS}'>"] --> B
  click B href "javascript:{JS}"''')
