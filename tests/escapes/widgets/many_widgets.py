"""A flood of widgets of modules that are refused, and of ids."""

for number in range(300):
    widget(f"module-{number}", "M", "V", version="*", show=False, code=JS)
    comm.create_comm(comm_id="x" * 10_000 + str(number), target_name=IMG() + str(number), data={"js": JS})
