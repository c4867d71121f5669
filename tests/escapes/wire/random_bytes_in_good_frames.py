# frames whose lengths are right and whose payloads are noise
# ends: protocol
for seed in range(1000): send(random.Random(seed).randbytes(50))
wait()
