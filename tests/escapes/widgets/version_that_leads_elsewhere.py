"""A version that page builders paste into an address on a content network."""

widget(CONTROLS, "HTMLModel", "HTMLView", version="../../../attacker", value=IMG())
