"""What is done in the zygote, for all guests, and what each guest does for itself."""

import subprocess
import sys

PROGRAM = """
import os, sys
import IPython.core.interactiveshell
from cellblock.analysis import Rules
from cellblock.analysis.allowlist import MODULES
from cellblock.guest import audit_hook, guards, runner, setup

rules = Rules(True, MODULES, frozenset(), frozenset())
guards.install(runner.RulesInForce(rules), {})
arm = audit_hook.arming(rules)
ours = [module for name, module in sys.modules.items() if name.startswith("cellblock.guest.")]
kinds = {kind for module in ours for kind in vars(module).values() if isinstance(kind, type)}
own = [kind for kind in kinds if kind.__module__.startswith("cellblock.guest.")]
print(len(own) > 20, all(kind.__flags__ & 1 << 8 for kind in own), "zoneinfo" in sys.modules)
print(len(os.listdir("/")) > 0, flush=True)

def report(operation):
    os.write(1, operation.encode())
    os._exit(0)

before = set(sys.modules)
arm(report)
print(sorted(set(sys.modules) - before), flush=True)
os.system("true")
"""


def test_the_zygote_freezes_our_classes_and_a_guest_only_adds_the_hook():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    assert done.stdout == "True True True\nTrue\n[]\nos.system"
