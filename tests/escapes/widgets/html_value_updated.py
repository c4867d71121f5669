"""An HTML widget that is harmless when it opens and is told another value later."""

made = control("HTML", value="nothing here")
update(made, value=IMG())
