# A command in a function that is called.
def run():
    !cat @@SSH@@
run()
