"""What a list lets guests reach, and what the names on it can't be made to lead to.

Which addresses are public is tested here for whoever asks: the relay and operations.
"""

import pytest

from cellblock.host.services.addresses import (
    MAX_ADDRESSES,
    Allowlist,
    is_public,
    read,
    refusal,
)
from cellblock.wire.messages import Neighbour

PUBLIC = [
    "93.184.216.34",
    "8.8.8.8",
    "::ffff:8.8.8.8",
    "2606:2800:220:1::1",
    "64:ff9b::808:808",  # NAT64 of a public address
]
#: What is this machine's, the network's own, a cloud's, nobody's, or many hosts'.
NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",  # metadata (Alibaba)
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",  # metadata (Azure)
    "169.254.169.254",  # metadata (nearly everybody)
    "172.16.0.1",
    "192.0.0.192",  # metadata (Oracle)
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",  # NAT64 of a metadata address
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:808:808::1",  # 6to4: whose relay that is nobody knows
    "2002:7f00:1::1",  # 6to4 of loopback
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata (Amazon)
    "fe80::1",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_of_the_internets_is_public(text):
    assert is_public(read(text))
    assert not refusal([text], private=False)


def test_an_address_of_this_machine_or_network_is_not_and_no_operation_asks_it():
    for text in NOT_PUBLIC:
        assert not is_public(read(text)), text
        assert refusal([text], private=False), text
        # One is enough, wherever it stands.
        assert refusal(["8.8.8.8", text], private=False), text


#: Where clouds give out credentials.
METADATA = [
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "192.0.0.192",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
]


def test_where_private_addresses_may_be_asked_those_of_credentials_may_not():
    for text in METADATA:
        assert "a cloud gives out credentials" in refusal([text], private=True), text
        assert "a cloud gives out credentials" in refusal(["10.0.0.1", text], private=True), text
    for text in ["10.0.0.1", "127.0.0.1", "100.64.0.1", "192.168.0.1", "::1", "fd00::1"]:
        assert refusal([text], private=True) == "", text  # positive control
    assert refusal(["224.0.0.1"], private=True) == "it has no public address"


def found_as(address, port, name=""):
    return Neighbour(name=name, address=address, port=port)


def test_who_is_found_at_a_listed_address_or_by_a_listed_name_is_listed():
    allowlist = Allowlist(["10.0.0.5:5432", "[2001:db8:0::1]:443", "example.org:443"])
    assert allowlist.has(found_as("10.0.0.5", 5432))
    assert allowlist.has(found_as("2001:db8::1", 443))
    assert allowlist.has(found_as("127.80.0.1", 443, "example.org"))
    for each in (
        found_as("10.0.0.5", 5433),
        found_as("10.0.0.6", 5432),
        found_as("127.80.0.1", 80, "example.org"),
        found_as("127.80.0.1", 443, "www.example.org"),
        found_as("127.80.0.1", 443),
    ):
        assert not allowlist.has(each)
    # By its address, where only its name is listed no more.
    assert Allowlist(["127.0.0.1:80"]).has(found_as("127.0.0.1", 80, "localhost"))


def test_a_name_that_is_made_to_lead_inside_leads_nowhere():
    for text in NOT_PUBLIC:
        allowlist = Allowlist(["rebound.example:80"])
        good, bad = allowlist.reachable(["93.184.216.34", text], 80)
        assert good == [read("93.184.216.34")], text
        assert read(bad) == read(text), text


def test_a_name_leads_inside_where_that_address_is_listed_at_the_same_port():
    allowlist = Allowlist(["db.example:5432", "10.0.0.5:5432", "10.0.0.6:22"])
    found = allowlist.reachable(["10.0.0.5", "10.0.0.6"], 5432)
    assert found == ([read("10.0.0.5")], "10.0.0.6")
    assert allowlist.reachable(["::ffff:10.0.0.5"], 5432) == ([read("10.0.0.5")], "")


def test_not_all_addresses_of_a_name_are_tried():
    allowlist = Allowlist(["example.org:443"])
    good, _ = allowlist.reachable((f"8.8.8.{last}" for last in range(200)), 443)
    assert len(good) == MAX_ADDRESSES


def test_what_is_no_address_is_none():
    allowlist = Allowlist(["example.org:443"])
    assert allowlist.reachable(["", "example.org", "127.1", "1"], 443) == ([], "")
    assert read("127.1") is read("0x7f000001") is read("example.org") is None
