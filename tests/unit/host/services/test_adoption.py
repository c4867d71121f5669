"""A restarted kernel goes on with what the one before it staged, and takes no longer for it."""

import subprocess
import sys

from cellblock.host.services import changes
from cellblock.policy.model import Policy
from cellblock.wire.messages import Layer

#: Adopts what is of the project in ``argv[1]`` under preset data, or under less than that.
ADOPTS = """
import sys
from cellblock.host.services.adoption import adopt
from cellblock.policy.model import Policy
from cellblock.wire.messages import Layer
project, folder, timeout = sys.argv[1:]
policy = Policy.preset("data").replace(timeout=float(timeout))
found = adopt((Layer(root=project, folder=folder),), policy, ["a kernel"])
print(found.staged and found.staged.id, "pydantic_core" in sys.modules)
"""


def test_the_same_policy_as_before_is_not_validated_again(project, upper):
    """Pydantic's import would be the longest part of a restart."""
    (upper / "new").write_text("new")
    (upper.parent / "work").mkdir()
    policy = Policy.preset("data").replace(timeout=5.0)
    layers = [Layer(root=str(project), folder=str(upper.parent))]
    for folder in (upper, upper.parent, upper.parent.parent):
        folder.chmod(0o700)

    def adopted(timeout):
        changes.begin(changes.of_layers(layers, policy, "", ["a kernel"])).close()
        later = str(upper.parent.parent.parent / "two" / "0")
        argv = [sys.executable, "-c", ADOPTS, str(project), later, timeout]
        return subprocess.run(argv, capture_output=True, check=True, text=True, timeout=60).stdout

    assert adopted("5.0").split() == ["one", "False"]
    assert adopted("9.0").split() == ["None", "True"]
