"""A relay that judges nothing: what a suite of probes has to find out."""

from cellblock.host.relay import server
from cellblock.host.relay.allowlist import Allowlist

Allowlist.reaches = lambda *_: True
main = server.main
