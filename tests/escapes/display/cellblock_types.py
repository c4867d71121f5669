"""cellblock's own cards, forged."""

for kind in ("denial", "enforcement", "outcome", "policy"):
    show(f"application/vnd.cellblock.{kind}+json", {"findings": [], "policy": "none"})
